/* The one ink of the page: from paper to full ink in OKLCH, lightness in a straight line so that equal steps of
   the scale are equal steps for the eye, and one hue throughout. The style sheet names both ends, and how much
   richer the middle is than a straight line. */
const Ink = (function () {
  const STEPS = 256;
  const MIDDLE = 128;
  const palettes = {};       // name -> {colours, words, packed}: css colours, black or white for words, pixels

  const toLinear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const toCoded = (c) => (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055);

  function channels(hex) {
    return [1, 3, 5].map((at) => toLinear(parseInt(hex.slice(at, at + 2), 16) / 255));
  }

  function toLab([r, g, b]) {
    const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
    const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
    const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
    return [
      0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
      1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
      0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
    ];
  }

  function fromLab([lightness, a, b]) {
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return [
      4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
      -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ];
  }

  const luminance = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;

  /* Colours, from black to white those read best on them, and pixels, of 256 colours in OKLab. */
  function palette(labs) {
    const colours = [];
    const words = [];
    const bytes = new Uint8ClampedArray(STEPS * 4);
    labs.forEach((lab, step) => {
      const rgb = fromLab(lab).map((c) => Math.round(255 * Math.min(1, Math.max(0, toCoded(Math.max(0, c))))));
      bytes.set([...rgb, 255], step * 4);
      colours.push("rgb(" + rgb.join(", ") + ")");
      const light = luminance(rgb.map((c) => toLinear(c / 255)));
      // One of the two always reaches sqrt(21) = 4.58 to 1.
      words.push((light + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff");
    });
    return { colours, words, packed: new Uint32Array(bytes.buffer) };
  }

  /* Mixes the scales anew from the style sheet; called at the start and when light turns to dark. */
  function mix() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    const [paper, full, less, more] = ["--paper", "--full", "--less", "--more"].map((name) => toLab(channels(read(name))));
    const between = (end, share) => paper.map((from, i) => from + share * (end[i] - from));
    const richness = Number(read("--richness")) / Math.hypot(full[1], full[2]);
    const steps = Array.from({ length: STEPS }, (_, step) => step);
    palettes.scale = palette(steps.map((step) => {
      const share = step / (STEPS - 1);
      const rich = richness * Math.sin(Math.PI * share);
      const [lightness, a, b] = between(full, share);
      return [lightness, a + rich * full[1], b + rich * full[2]];
    }));
    // From less through the paper, at the middle step, to more.
    palettes.difference = palette(steps.map((step) => between(step < MIDDLE ? less : more, Math.min(1, Math.abs(step - MIDDLE) / (MIDDLE - 1)))));
  }

  const step = (share) => Math.round((STEPS - 1) * Math.min(1, Math.max(0, share)));

  /* Sets a canvas to `width` x `height` css pixels at the screen's resolution; its context draws in screen pixels. */
  function sized(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    return canvas.getContext("2d");
  }

  /* A canvas holding `columns` x `rows` steps of ink, one pixel each, to be enlarged without blurring. */
  function image(steps, columns, rows, name = "scale") {
    const { packed } = palettes[name];
    const pixels = new Uint32Array(columns * rows);
    for (let i = 0; i < pixels.length; i++) pixels[i] = packed[steps[i]];
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    const bytes = new Uint8ClampedArray(pixels.buffer);
    canvas.getContext("2d").putImageData(new ImageData(bytes, columns, rows), 0, 0);
    return canvas;
  }

  /* A legend: the scale as a strip, and the numbers of `marks` ({at: 0..1, text}) under it. */
  function legend({ title, marks, palette: name }) {
    const canvas = Words.element("canvas");
    const strip = Words.element("div", "strip");
    strip.append(canvas);
    for (const mark of marks) {
      const tick = Words.element("span", "number", mark.text);
      tick.style.left = 100 * mark.at + "%";
      strip.append(tick);
    }
    const context = sized(canvas, 160, 8);
    context.imageSmoothingEnabled = false;
    context.drawImage(whole(name), 0, 0, canvas.width, canvas.height);
    return [Words.element("span", "quiet", title), strip];
  }

  const whole = (name) => image(Uint8Array.from({ length: STEPS }, (_, i) => i), STEPS, 1, name);

  /* The colour of a share: 0 to 1 on the scale, -1 to 1 between less and more. */
  function colourOf(share, name) {
    const at = name === "difference" ? MIDDLE + Math.round((MIDDLE - 1) * Math.min(1, Math.max(-1, share))) : step(share);
    return palettes[name].colours[at];
  }

  return {
    mix, sized, image, legend, whole, colourOf,
    colour: (share) => palettes.scale.colours[step(share)],
    wordsOn: (share) => palettes.scale.words[step(share)],
  };
})();
