// Anchor of the support library.
