/* The open head as a matrix: queries down, keys across, a learned sink as a column of its own. */
function Matrix(run) {
  const bench = run.part("bench");
  const host = run.part("matrix");
  const canvas = run.part("matrix-ink");
  const svg = run.part("matrix-labels");
  const mark = run.part("matrix-mark");
  const note = run.part("matrix-note");
  const down = Axis.along(run.queries);
  const across = Axis.along(run.keys);
  const LARGEST = 456;
  const LARGEST_CELL = 48;
  const LABEL_ROOM = 8;
  const TWO_COLUMNS = 780;     // from this width the readings stand beside the matrix, as the style sheet says
  const BESIDE = 360;
  const SINK_GAP = 6;
  let box = null;              // where things stand; cell is a column's width and line a row's height
  let shown = null;            // {state, head} last drawn

  /* The cell of `count` in at most `most` pixels, whole pixels where there are enough. */
  function fitted(count, most) {
    return Math.min(LARGEST_CELL, count <= most ? Math.floor(most / count) : most / count);
  }

  function measure(hasSink) {
    const available = bench.clientWidth - (bench.clientWidth >= TWO_COLUMNS ? BESIDE : 0);
    const sinkRoom = hasSink ? 20 + SINK_GAP : 0;
    const cellIn = (left, right) => Math.min(
      fitted(across.count, Math.min(LARGEST, available - left - right - sinkRoom)), fitted(down.count, LARGEST),
    );
    // Cells are squares, but a few queries over many keys are given rows that can be seen.
    const heightOf = (cell) => (down.count < across.count ? Math.max(cell, Math.min(Axis.LINE, fitted(down.count, LARGEST))) : cell);
    // Rows are named where their lines are far enough apart; the columns then need their own answer.
    let left = Math.max(down.longest() + LABEL_ROOM, 76);
    let columns = across.fit(cellIn(left, 0));
    let right = columns.angle === 45 ? Math.ceil(across.measured()[across.count - 1] * 0.72) : 0;
    let cell = cellIn(left, right);
    const rows = heightOf(cell) >= Axis.LINE ? { angle: 0 } : Axis.ticks(heightOf(cell));
    if (rows.step) left = 88;
    if (columns.step) {
      right = 0;
      cell = cellIn(left, right);
    }
    columns = columns.step || rows.step ? Axis.ticks(cell) : across.fit(cell);
    const labels = { 0: 24, 45: across.longest() * 0.72 + 24, 90: across.longest() + 16 }[columns.angle] ?? 24;
    const sink = hasSink ? Math.max(8, Math.min(20, cell)) : 0;
    return {
      left: left + (hasSink ? sink + SINK_GAP : 0), top: Math.ceil(Math.max(40, labels)), right, cell, line: heightOf(cell), sink, rows, columns,
      width: cell * across.count, height: heightOf(cell) * down.count,
    };
  }

  function labels() {
    const { left, top, width, height, cell, line, rows, columns, sink, right } = box;
    svg.setAttribute("width", left + width + right);
    svg.setAttribute("height", top + height + 1);
    const parts = [];
    const edge = left - (sink ? sink + SINK_GAP : 0) - LABEL_ROOM;
    for (const i of down.places(rows.step)) {
      const text = rows.step ? String(i) : down.labels[i];
      const y = top + (i + 0.5) * line + 4.5;
      parts.push(Axis.make("text", { x: edge, y, "text-anchor": "end", "data-row": i }, text));
    }
    for (const i of across.places(columns.step)) {
      const text = columns.step ? String(i) : across.labels[i];
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
    const { left, top, width, height, sink } = box;
    host.style.width = left + width + box.right + "px";
    host.style.height = top + height + "px";
    labels();
    const strip = sink ? sink + SINK_GAP : 0;
    const context = Ink.sized(canvas, width + strip, height);
    canvas.style.left = left - strip + "px";
    canvas.style.top = top + "px";
    const ratio = canvas.height / height;
    const found = steps();
    context.imageSmoothingEnabled = false;
    context.drawImage(Ink.image(found.steps, found.columns, found.rows), strip * ratio, 0, width * ratio, canvas.height);
    if (sink) context.drawImage(Ink.image(head.sinks, 1, head.rows), 0, 0, sink * ratio, canvas.height);
    host.setAttribute("aria-label", "Weights of layer " + state.layer + ", head " + state.head
      + ": queries down, keys across. The row of the chosen token is listed beside it.");
    follow(state);
  }

  /* The matrix as it stands on this screen. */
  function steps() {
    const ratio = canvas.height / box.height;
    return shown.head.steps(canvas.height, Math.round(box.width * ratio), shown.state.discount);
  }

  /* Moves the mark to the chosen token's row, or to its column when the direction is turned. */
  function follow(state) {
    shown.state = state;
    const found = marked();
    mark.style.left = found.x - 1 + "px";
    mark.style.top = found.y - 1 + "px";
    mark.style.width = found.width + 2 + "px";
    mark.style.height = found.height + 2 + "px";
    for (const old of svg.querySelectorAll(".chosen")) old.classList.remove("chosen");
    const name = state.direction === "from" ? "data-row" : "data-column";
    const chosen = svg.querySelector("[" + name + '="' + state.token + '"]');
    if (chosen) chosen.classList.add("chosen");
    describe(null);
  }

  function marked() {
    const { left, top, width, height, cell, line } = box;
    const { token, direction } = shown.state;
    return direction === "from" ? { x: left, y: top + token * line, width, height: Math.max(line, 2) }
      : { x: left + token * cell, y: top, width: Math.max(cell, 2), height };
  }

  function describe(pair) {
    const { state, head } = shown;
    if (pair) {
      const [query, key] = pair;
      const link = head.from(query, state.discount).find((one) => one.token === key);
      const weight = link ? Words.weight(link.weight, link.exact) : head.complete(query) ? "0" : "not among the keys kept";
      note.textContent = down.labels[query] + " (" + query + ") looks at " + across.labels[key] + " (" + key + "): " + weight;
      return;
    }
    note.textContent = said();
  }

  /* What the matrix shows. */
  function said() {
    const { state, head } = shown;
    return shows(head, state.discount) + Caption.discounted(state, head.sinks);
  }

  function shows(head, discount) {
    if (head.full) return head.exact ? "Every weight, as computed." : "Every weight, in 8 bits.";
    const kept = Words.kept(head.choice);
    if (!head.pooled(discount)) return Words.sentence(kept) + "; the other weights are not in this file.";
    return "Pooled to " + head.map.rows + " × " + head.map.columns + " cells: the mass on a cell's keys, averaged over its rows. Single weights: " + kept + ".";
  }

  function build() {
    const pairAt = (event) => {
      const spot = canvas.getBoundingClientRect();
      const strip = spot.width - box.width;
      const query = Math.floor((event.clientY - spot.top) / box.line);
      const key = Math.floor((event.clientX - spot.left - strip) / box.cell);
      return query >= 0 && query < down.count && key >= 0 && key < across.count ? [query, key] : null;
    };
    const tokenOf = ([query, key]) => (shown.state.direction === "from" ? query : key);
    canvas.addEventListener("pointermove", (event) => {
      const pair = shown && pairAt(event);
      if (!pair) return;
      State.point({ token: tokenOf(pair) }, run);
      requestAnimationFrame(() => describe(pair));
    });
    canvas.addEventListener("pointerleave", () => { State.point({ token: null }, run); if (shown) describe(null); });
    canvas.addEventListener("click", (event) => {
      const pair = shown && pairAt(event);
      if (pair) State.pin({ token: tokenOf(pair) }, run);
    });
  }

  const picture = () => ({ ...box, ...shown, gap: SINK_GAP, names: svg.children, mark: marked(), ...steps(), said: said() });

  return { build, draw, follow, picture };
}
