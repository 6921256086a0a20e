/* A map of all heads: one canvas for the ink, and over it one element a head, which is what is pointed at,
   focused and read out. */
function HeadMap(source) {
  const { run } = source;
  const { header } = run;
  const part = (id) => document.getElementById(id + source.suffix);
  const room = document.getElementById("map-zone");
  const host = part("map");
  const grid = part("grid");
  const canvas = part("map-ink");
  const BESIDE_GAP = 32;       // between maps that are compared, as the style sheet has it
  const LEAST_BESIDE = 240;
  const cells = new Map();
  let plan = null;
  let focusable = null;
  let selected = null;
  let previewed = null;

  const nameOf = (layer, head) => layer + "." + head;

  function describe(layer, head) {
    const found = run.head(layer, head);
    const numbers = run.measures.map(({ key, label }) => label + " " + source.say(found, key));
    return "layer " + layer + ", head " + head + ", KV head " + found.kv_head + ": " + numbers.join(", ");
  }

  function build() {
    grid.setAttribute("aria-label", "Heads: layers down, heads across. Arrow keys walk, Enter opens.");
    grid.setAttribute("aria-rowcount", header.layers.length);
    for (const { layer, head } of header.heads) {
      const cell = Words.element("div", "cell");
      cell.setAttribute("role", "gridcell");
      cell.setAttribute("aria-label", describe(layer, head));
      cell.setAttribute("aria-selected", "false");
      cell.tabIndex = -1;
      cell.dataset.name = nameOf(layer, head);
      cells.set(cell.dataset.name, cell);
    }
    grid.addEventListener("pointerover", (event) => State.point({ head: headAt(event.target) }, run));
    grid.addEventListener("pointerleave", () => State.point({ head: null }, run));
    grid.addEventListener("click", (event) => {
      const head = headAt(event.target);
      if (head) State.pin(head, run);
    });
    grid.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) State.point({ head: headAt(event.target) }, run);
    });
    grid.addEventListener("focusout", () => State.point({ head: null }, run));
    grid.addEventListener("keydown", walk);
  }

  function headAt(target) {
    const cell = target.closest(".cell");
    if (!cell) return null;
    const [layer, head] = cell.dataset.name.split(".").map(Number);
    return { layer, head };
  }

  function walk(event) {
    const here = headAt(event.target);
    if (!here) return;
    if (event.key === "Enter" || event.key === " ") { State.pin(here, run); open(); }
    else if (event.key === "Escape") focusPinned();
    else {
      const next = neighbour(here, event.key);
      if (!next) return;
      cells.get(nameOf(next.layer, next.head)).focus();
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /* The nearest place in the direction of the key; empty places are passed over. */
  function neighbour(here, key) {
    const row = plan.rows.findIndex((one) => one.places.some((place) => same(place, here)));
    const { places } = plan.rows[row];
    const column = places.findIndex((place) => same(place, here));
    if (key === "ArrowLeft") return places[Math.max(0, column - 1)];
    if (key === "ArrowRight") return places[Math.min(places.length - 1, column + 1)];
    if (key === "Home") return places[0];
    if (key === "End") return places[places.length - 1];
    if (key !== "ArrowUp" && key !== "ArrowDown") return null;
    const target = plan.rows[Math.min(plan.rows.length - 1, Math.max(0, row + (key === "ArrowUp" ? -1 : 1)))];
    const { x } = places[column];
    return target.places.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));
  }

  const same = (a, b) => a.layer === b.layer && a.head === b.head;

  function open() {
    const heading = run.part("depth-heading");
    heading.focus({ preventScroll: true });
    const box = heading.getBoundingClientRect();
    if (box.top < 0 || box.bottom > window.innerHeight * 0.6) heading.scrollIntoView({ block: "start" });
  }

  function focusPinned() {
    const { layer, head } = State.pinned(run);
    cells.get(nameOf(layer, head)).focus();
  }

  /* Puts rows, labels and cells where the order and the width want them. */
  function arrange(state) {
    const beside = (room.clientWidth - BESIDE_GAP * (MapSource.all.length - 1)) / MapSource.all.length;
    const available = beside >= LEAST_BESIDE ? beside : room.clientWidth;
    // Where two runs have the same heads, the first one's numbers order all.
    plan = MapLayout.of(Data.sameHeads ? Data.runs[0] : run).arrange(available, state.order);
    host.style.width = plan.width + "px";
    host.style.height = plan.height + "px";
    const rows = plan.rows.map((row) => {
      const line = Words.element("div", "row");
      line.setAttribute("role", "row");
      const name = place(Words.element("span", "number row-name", row.text), 0, row.y, null, plan.cell);
      name.setAttribute("role", "rowheader");
      name.setAttribute("aria-label", row.name);
      line.append(name);
      for (const spot of row.places) {
        line.append(place(cells.get(nameOf(spot.layer, spot.head)), spot.x, spot.y, plan.cell, plan.cell));
      }
      return line;
    });
    const labels = plan.labels.map((label) => {
      const made = Words.element("span", "number column-name " + label.kind, label.text);
      made.setAttribute("aria-hidden", "true");
      return place(made, label.x, label.y, label.width ?? null, null);
    });
    grid.replaceChildren(...labels, ...rows);
  }

  function place(element, x, y, width, height) {
    element.style.left = x + "px";
    element.style.top = y + "px";
    if (width !== null) element.style.width = width + "px";
    if (height !== null) element.style.height = height + "px";
    return element;
  }

  /* Marks the pinned and the previewed head. */
  function mark(state) {
    const place = State.pinned(run);
    const pinned = cells.get(nameOf(place.layer, place.head));
    const shown = cells.get(nameOf(state.layer, state.head));
    if (selected) selected.setAttribute("aria-selected", "false");
    if (previewed) previewed.classList.remove("previewed");
    if (focusable) focusable.tabIndex = -1;
    selected = pinned;
    previewed = shown;
    focusable = shown;
    pinned.setAttribute("aria-selected", "true");
    shown.classList.add("previewed");
    shown.tabIndex = 0;
  }

  const paint = (state) => MapInk.paint(source, canvas, plan, state);

  return { build, arrange, paint, mark, open, focusPinned, plan: () => plan };
}
