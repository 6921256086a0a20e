/* The open head as arcs over the text: width and ink are weight; the chosen token's arcs stand out. */
function Arcs(run) {
  const svg = run.part("arcs");
  const axis = Axis.along(run.queries);
  const { count } = axis;
  const HEIGHT = 144;
  const PADDING = 12;
  const ALL_UP_TO = 64;        // tokens; beyond it only the chosen token's arcs are drawn
  const LEAST = 0.02;          // fainter arcs of other tokens are left out
  const MOST = 96;             // arcs of one token
  const WIDEST = 8;            // pixels of an arc of weight 1, less where tokens stand close
  const NAMED = 6;
  let line = null;             // {at: x of each token, sink: x or null, mode, width, widest}
  const layers = {};

  /* As a line of text where it fits, otherwise evenly spaced. */
  function place(width, hasSink) {
    const gap = 14;
    const sinkRoom = hasSink ? 48 : 0;
    const widths = axis.measured();
    const natural = widths.reduce((sum, one) => sum + one + gap, 0);
    if (natural + sinkRoom <= width) {
      const stretch = Math.min(1.6, (width - sinkRoom) / natural);
      let x = sinkRoom;
      const at = widths.map((one) => { const middle = x + ((one + gap) * stretch) / 2; x += (one + gap) * stretch; return middle; });
      return { at, sink: hasSink ? 20 : null, mode: { angle: 0 }, width: x, widest: WIDEST };
    }
    const room = width - sinkRoom - PADDING * 2;
    const cell = room / count;
    const at = Array.from({ length: count }, (_, i) => sinkRoom + PADDING + (i + 0.5) * cell);
    const widest = Math.min(WIDEST, Math.max(2, cell * 0.6));
    return { at, sink: hasSink ? 20 : null, mode: axis.fit(cell), width, widest };
  }

  function arc(from, to, weight, colour) {
    const thick = Math.max(0.6, line.widest * weight);
    const paint = { fill: "none", stroke: colour, "stroke-width": thick.toFixed(2) };
    if (from === to) {
      const path = "M" + (to - 6) + " " + HEIGHT + "c-6 -26 18 -26 12 0";
      return Axis.make("path", { d: path, ...paint });
    }
    const reach = Math.abs(to - from);
    const longest = line.at[count - 1] - line.at[0] || 1;
    const rise = (HEIGHT - WIDEST) * Math.min(1, 0.12 + 0.88 * Math.sqrt(reach / longest));
    const path = "M" + from.toFixed(1) + " " + HEIGHT + "A" + (reach / 2).toFixed(1) + " " + rise.toFixed(1)
      + " 0 0 " + (from < to ? 1 : 0) + " " + to.toFixed(1) + " " + HEIGHT;
    return Axis.make("path", { d: path, ...paint });
  }

  function draw(state, head) {
    line = place(run.part("bench").clientWidth, Boolean(head.sinks));
    const turned = line.mode.angle === 45 ? 0.72 : 1;
    const below = line.mode.angle ? axis.longest() * turned + 20 : 32;
    svg.setAttribute("width", Math.ceil(line.width));
    svg.setAttribute("height", Math.ceil(HEIGHT + below));
    for (const name of ["others", "chosen", "names"]) layers[name] = Axis.make("g", { class: name });
    svg.replaceChildren(layers.others, layers.chosen, layers.names);
    svg.setAttribute("aria-label", "Layer " + state.layer + ", head " + state.head + " as arcs over the text.");
    if (count <= ALL_UP_TO) layers.others.append(...others(head, state.discount));
    names();
    follow(state, head);
  }

  function others(head, discount) {
    const made = [];
    for (let row = 0; row < count; row++) {
      for (const { token, weight } of head.from(row, discount)) {
        if (weight >= LEAST && token !== row) made.push(arc(line.at[row], line.at[token], weight, Ink.colour(0.14)));
      }
    }
    return made;
  }

  function names() {
    for (const i of axis.places(line.mode.step)) {
      const text = line.mode.step ? String(i) : axis.labels[i];
      const name = Axis.turned(text, line.at[i], HEIGHT + 2, line.mode.angle ?? 0, true);
      name.setAttribute("data-token", i);
      layers.names.append(name);
    }
    if (line.sink) layers.names.append(Axis.turned("sink", line.sink, HEIGHT + 2, line.mode.angle ?? 0, true));
  }

  /* The links of the chosen token that are drawn, the largest first. */
  function drawn(state, head) {
    const links = [...head.links(state.token, state.direction, state.discount)].sort((a, b) => b.weight - a.weight);
    return links.slice(0, MOST);
  }

  function follow(state, head) {
    const links = drawn(state, head);
    const here = line.at[state.token];
    const made = [...links].reverse().map(({ token, weight }) => (
      arc(here, line.at[token], weight, Ink.colour(Math.sqrt(weight)))
    ));
    const sink = state.direction === "from" ? head.sink(state.token) : 0;
    if (sink > 0) made.push(arc(here, line.sink, sink, Ink.colour(Math.sqrt(sink))));
    layers.chosen.replaceChildren(...made);
    for (const old of layers.names.querySelectorAll(".chosen")) old.classList.remove("chosen");
    for (const old of layers.names.querySelectorAll(".extra")) old.remove();
    if (line.mode.step) named(state.token, links);
    else layers.names.querySelector('[data-token="' + state.token + '"]').classList.add("chosen");
  }

  /* On a numbered axis the chosen token and its strongest partners are named, as far as they have room. */
  function named(token, links) {
    const taken = [];
    const wanted = [token, ...links.slice(0, NAMED).map((link) => link.token)];
    for (const one of wanted) {
      const half = axis.measured()[one] / 2 + 6;
      const x = Math.min(line.width - half, Math.max(half, line.at[one]));
      if (taken.some(([from, to]) => x - half < to && x + half > from)) continue;
      taken.push([x - half, x + half]);
      const name = Axis.turned(axis.labels[one], x, HEIGHT + 16, 0, true);
      name.setAttribute("class", one === token ? "extra chosen" : "extra");
      layers.names.append(name);
    }
  }

  return { draw, follow, drawn, shows: { all: count <= ALL_UP_TO, least: LEAST } };
}
