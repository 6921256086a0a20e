/* Labels along a row of tokens: words while they fit, turned only as far as needed, and otherwise a numbered axis. */
const Axis = (function () {
  // The name space of SVG is taken from an element the parser made.
  const SVG = document.getElementById("arcs").namespaceURI;
  const ruler = document.createElement("canvas").getContext("2d");
  const LINE = 14;             // the least distance of two lines of small text
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
  const labels = Data.header.tokens.map(Words.label);
  let widths = null;

  function measured() {
    if (!widths) {
      ruler.font = getComputedStyle(document.getElementById("map-readout")).fontSize + " " + monospace();
      widths = labels.map((label) => ruler.measureText(label).width);
    }
    return widths;
  }

  function monospace() {
    return getComputedStyle(document.documentElement).getPropertyValue("--mono").trim();
  }

  const longest = () => Math.max(...measured());

  /* How labels `cell` pixels apart are set: {angle} in degrees, or {step} for a numbered axis. */
  function fit(cell) {
    if (longest() + 8 <= cell) return { angle: 0 };
    if (cell >= LINE * 1.5) return { angle: 45 };
    if (cell >= LINE) return { angle: 90 };
    return ticks(cell);
  }

  function ticks(cell) {
    return { step: STEPS.find((step) => step * cell >= 40) ?? STEPS[STEPS.length - 1] };
  }

  function make(name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  /* A label that stands above (x, y), or below it where `below`, turned by `angle`. */
  function turned(text, x, y, angle, below) {
    const down = below ? 1 : -1;
    if (angle === 0) return make("text", { x, y: y + (below ? LINE : -6), "text-anchor": "middle" }, text);
    const anchor = below ? "end" : "start";
    const turn = "translate(" + (x + 4) + " " + (y + down * (below ? 12 : 6)) + ") rotate(" + -angle + ")";
    return make("text", { transform: turn, "text-anchor": anchor }, text);
  }

  /* Positions of the numbered ticks. */
  function numbers(step) {
    const found = [];
    for (let i = 0; i < labels.length; i += step) found.push(i);
    return found;
  }

  return { labels, measured, longest, fit, ticks, numbers, make, turned };
})();
