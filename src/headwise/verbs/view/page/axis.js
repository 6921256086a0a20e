/* Labels along a row of tokens: words while they fit, turned only as far as needed, and otherwise a numbered axis. */
const Axis = (function () {
  // The name space of SVG is taken from an element the parser made.
  const SVG = document.getElementById("arcs").namespaceURI;
  const ruler = document.createElement("canvas").getContext("2d");
  const LINE = 14;             // the least distance of two lines of small text
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
  const made = new Map();      // tokens -> their axis

  /* The axis of a run's tokens; made once. */
  function along(tokens) {
    if (!made.has(tokens)) made.set(tokens, axis(tokens));
    return made.get(tokens);
  }

  function axis(tokens) {
    const labels = tokens.map(Words.label);
    let widths = null;

    function measured() {
      if (!widths) {
        ruler.font = getComputedStyle(document.getElementById("map-readout")).fontSize + " " + monospace();
        widths = labels.map((label) => ruler.measureText(label).width);
      }
      return widths;
    }

    const longest = () => measured().reduce((a, b) => Math.max(a, b), 0);

    /* How labels `cell` pixels apart are set: {angle} in degrees, or {step} for a numbered axis. */
    function fit(cell) {
      if (longest() + 8 <= cell) return { angle: 0 };
      if (cell >= LINE * 1.5) return { angle: 45 };
      if (cell >= LINE) return { angle: 90 };
      return ticks(cell);
    }

    /* The places that are named or numbered. */
    function places(step) {
      const found = [];
      for (let i = 0; i < labels.length; i += step || 1) found.push(i);
      return found;
    }

    return { count: labels.length, labels, measured, longest, fit, places };
  }

  function monospace() {
    return getComputedStyle(document.documentElement).getPropertyValue("--mono").trim();
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

  return { along, ticks, make, turned, LINE };
})();
