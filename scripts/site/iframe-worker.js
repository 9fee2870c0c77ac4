// SPDX-License-Identifier: Apache-2.0
// Search in pages that are opened from disk, where browsers start no workers: the script of a worker runs in a hidden frame instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const element = this.inside.document.createElement("script");
      this.loaded = new Promise(done => { element.onload = done; });
      element.src = script;
      this.inside.document.head.append(element);
    }
    async postMessage(data) {
      await this.loaded;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
