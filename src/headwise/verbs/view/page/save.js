/* The words that save what is shown. Nothing leaves the machine: a file is made here and handed to the browser. */
const Save = (function () {
  const KEPT_MS = 60000;       // how long the browser may take to write the file

  function hand(blob, name) {
    const link = document.createElement("a");
    const address = URL.createObjectURL(blob);
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
  }

  /* `made`: {what, name(), picture(), table()}; a picture is an SVG element, a table is text. */
  function choice(made, status) {
    const ways = {
      SVG: async () => Figure.written(await made.picture()),
      PNG: async () => Figure.pixels(await made.picture()),
      CSV: async () => new Blob([await made.table()], { type: "text/csv" }),
    };
    const buttons = Object.entries(ways).map(([kind, make]) => {
      const button = Words.element("button", "save-as", kind);
      button.type = "button";
      button.dataset.save = made.what + " " + kind;
      const whose = Data.runs.length > 1 ? " (" + made.whose + ")" : "";
      button.setAttribute("aria-label", "save the " + made.what + whose + " as " + kind);
      button.addEventListener("click", async () => {
        const name = made.name() + "." + kind.toLowerCase();
        hand(await make(), name);
        status.textContent = "saved as " + name;
      });
      return button;
    });
    const line = Words.element("span", "choice");
    line.append("save the " + made.what, ...buttons);
    return line;
  }

  /* Puts the words for each of `things` into `host`. */
  function offer(host, things) {
    const status = Words.element("span", "status");
    status.setAttribute("role", "status");
    host.replaceChildren(...things.map((made) => choice(made, status)), status);
  }

  function head(bench) {
    offer(bench.run.part("save-head"), ["matrix", ...(bench.arcs ? ["arcs"] : [])].map((what) => ({
      what, whose: bench.run.name, name: () => HeadPicture.name(bench, what), picture: () => HeadPicture[what](bench), table: () => HeadPicture[what + "Table"](bench),
    })));
  }

  function map(one) {
    offer(document.getElementById("save-map" + one.source.suffix), [{
      what: "map of heads", whose: one.source.name, name: () => MapPicture.name(one), picture: () => MapPicture.picture(one), table: () => MapPicture.table(one),
    }]);
  }

  return { head, map };
})();
