/* The open head as a matrix: queries down, keys across, a learned sink as a column of its own. */
const Matrix = (function () {
  const { header } = Data;
  const zone = document.getElementById("depth-zone");
  const host = document.getElementById("matrix");
  const canvas = document.getElementById("matrix-ink");
  const svg = document.getElementById("matrix-labels");
  const mark = document.getElementById("matrix-mark");
  const note = document.getElementById("matrix-note");
  const count = header.seq_len;
  const LARGEST = 456;
  const LARGEST_CELL = 48;
  const LABEL_ROOM = 8;
  const TWO_COLUMNS = 780;     // from this width the readings stand beside the matrix, as the style sheet says
  const BESIDE = 360;
  const SINK_GAP = 6;
  let box = null;              // where things stand: {left, top, size, cell, sink, width, height, rows, columns}
  let shown = null;            // {state, head} last drawn

  function measure(hasSink) {
    const available = zone.clientWidth - (zone.clientWidth >= TWO_COLUMNS ? BESIDE : 0);
    const labelled = Axis.longest() + LABEL_ROOM;
    const room = (left, right, sink) => {
      const most = Math.min(LARGEST, available - left - right - sink, count * LARGEST_CELL);
      return count <= most ? Math.floor(most / count) * count : Math.floor(most);
    };
    // Rows are named where their lines are far enough apart; the columns then need their own answer.
    const sinkRoom = hasSink ? 20 + SINK_GAP : 0;
    let left = Math.max(labelled, 76);
    let columns = Axis.fit(room(left, 0, sinkRoom) / count);
    let right = columns.angle === 45 ? Math.ceil(Axis.measured()[count - 1] * 0.72) : 0;
    let size = room(left, right, sinkRoom);
    const rows = size / count >= 14 ? { angle: 0 } : Axis.ticks(size / count);
    if (rows.step) {
      left = 88;
      right = 0;
      size = room(left, right, sinkRoom);
      columns = Axis.ticks(size / count);
    } else columns = Axis.fit(size / count);
    const height = { 0: 24, 45: Axis.longest() * 0.72 + 24, 90: Axis.longest() + 16 }[columns.angle] ?? 24;
    const top = Math.ceil(Math.max(40, height));
    const sink = hasSink ? Math.max(8, Math.min(20, size / count)) : 0;
    return { left: left + (hasSink ? sink + SINK_GAP : 0), top, size, cell: size / count, sink, rows, columns, right };
  }

  function labels() {
    const { left, top, size, cell, rows, columns, sink, right } = box;
    svg.setAttribute("width", left + size + right);
    svg.setAttribute("height", top + size + 1);
    const parts = [];
    const edge = left - (sink ? sink + SINK_GAP : 0) - LABEL_ROOM;
    const middle = (i) => top + (i + 0.5) * cell + 4.5;
    const rowNames = rows.step ? Axis.numbers(rows.step) : Axis.labels.map((_, i) => i);
    for (const i of rowNames) {
      const text = rows.step ? String(i) : Axis.labels[i];
      parts.push(Axis.make("text", { x: edge, y: middle(i), "text-anchor": "end", "data-row": i }, text));
    }
    const columnNames = columns.step ? Axis.numbers(columns.step) : Axis.labels.map((_, i) => i);
    for (const i of columnNames) {
      const text = columns.step ? String(i) : Axis.labels[i];
      const made = Axis.turned(text, left + (i + 0.5) * cell, top, columns.angle ?? 0, false);
      made.setAttribute("data-column", i);
      parts.push(made);
    }
    if (sink) parts.push(Axis.turned("sink", left - SINK_GAP - sink / 2, top, columns.angle ?? 0, false));
    parts.push(
      Axis.make("text", { x: edge - 8, y: top - 22, "text-anchor": "end", class: "title" }, "keys →"),
      Axis.make("text", { x: edge - 8, y: top - 6, "text-anchor": "end", class: "title" }, "queries ↓"),
    );
    svg.replaceChildren(...parts);
  }

  function draw(state, head) {
    shown = { state, head };
    box = measure(Boolean(head.sinks));
    const { left, top, size, sink } = box;
    host.style.width = left + size + box.right + "px";
    host.style.height = top + size + "px";
    labels();
    const strip = sink ? sink + SINK_GAP : 0;
    const context = Ink.sized(canvas, size + strip, size);
    canvas.style.left = left - strip + "px";
    canvas.style.top = top + "px";
    const ratio = canvas.height / size;
    const { steps, shown: cells } = head.steps(canvas.height, state.discount);
    context.imageSmoothingEnabled = false;
    context.drawImage(Ink.image(steps, cells, cells), strip * ratio, 0, size * ratio, size * ratio);
    if (sink) context.drawImage(Ink.image(head.sinks, 1, count), 0, 0, sink * ratio, size * ratio);
    host.setAttribute("aria-label", "Weights of layer " + state.layer + ", head " + state.head
      + ": queries down, keys across. The row of the chosen token is listed beside it.");
    follow(state);
  }

  /* Moves the mark to the chosen token's row, or to its column when the direction is turned. */
  function follow(state) {
    shown.state = state;
    const { left, top, size, cell } = box;
    const at = state.token * cell;
    const row = state.direction === "from";
    const thick = Math.max(cell, 2);
    mark.style.left = (row ? left : left + at) - 1 + "px";
    mark.style.top = (row ? top + at : top) - 1 + "px";
    mark.style.width = (row ? size : thick) + 2 + "px";
    mark.style.height = (row ? thick : size) + 2 + "px";
    for (const old of svg.querySelectorAll(".chosen")) old.classList.remove("chosen");
    const chosen = svg.querySelector((row ? '[data-row="' : '[data-column="') + state.token + '"]');
    if (chosen) chosen.classList.add("chosen");
    describe(null);
  }

  function describe(pair) {
    if (pair) {
      const [query, key] = pair;
      const { state, head } = shown;
      const link = head.from(query, state.discount).find((one) => one.token === key);
      const weight = link ? Words.weight(link.weight) : head.full ? "0" : "not among the keys kept";
      note.textContent = Axis.labels[query] + " (" + query + ") looks at " + Axis.labels[key] + " (" + key + "): " + weight;
      return;
    }
    const { state, head } = shown;
    const what = head.full ? "Every weight, in 8 bits." : "The " + head.kept + " largest keys of each row; the other weights are not in this file.";
    const first = " The first token is left out and each row brought back to its sum"
      + (head.sinks ? "; the learned sink keeps its share." : ".");
    note.textContent = what + (state.discount ? first : "");
  }

  function build() {
    const pairAt = (event) => {
      const spot = canvas.getBoundingClientRect();
      const strip = spot.width - box.size;
      const at = (offset) => Math.floor(offset / box.cell);
      const pair = [at(event.clientY - spot.top), at(event.clientX - spot.left - strip)];
      return pair.every((i) => i >= 0 && i < count) ? pair : null;
    };
    const tokenOf = ([query, key]) => (shown.state.direction === "from" ? query : key);
    canvas.addEventListener("pointermove", (event) => {
      const pair = shown && pairAt(event);
      if (!pair) return;
      State.point({ token: tokenOf(pair) });
      requestAnimationFrame(() => describe(pair));
    });
    canvas.addEventListener("pointerleave", () => { State.point({ token: null }); if (shown) describe(null); });
    canvas.addEventListener("click", (event) => {
      const pair = shown && pairAt(event);
      if (pair) State.pin({ token: tokenOf(pair) });
    });
  }

  return { build, draw, follow };
})();
