# SPDX-License-Identifier: Apache-2.0
"""--quick: one case of each test function, without files that are marked as slow."""


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="the first case of each test function, and no file marked as slow")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out by --quick")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--quick"):
        return
    seen, kept, left = set(), [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        out = function in seen or item.get_closest_marker("slow")
        seen.add(function)
        (left if out else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
