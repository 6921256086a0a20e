/* One run on show: its text, and one of its heads in depth. */
function Bench(run) {
  const NEW_HEAD = ["layer", "head", "discount", "look"];
  const text = TextZone(run);
  const matrix = Matrix(run);
  const arcs = run.grid ? null : run.crossed ? Bridges(run) : Arcs(run);   // patches stand in no line
  const readings = Readings(run);
  const siblings = Siblings(run);
  let drawn = null;            // the HeadWeights on show

  function build() {
    text.build();
    matrix.build();
    run.part("arcs").toggleAttribute("hidden", !arcs);
  }

  function words(state) {
    const { kv_head: kvHead } = run.head(state.layer, state.head);
    const others = run.header.heads
      .filter((one) => one.layer === state.layer && one.kv_head === kvHead && one.head !== state.head)
      .map((one) => one.head);
    run.part("depth-heading").textContent = "Layer " + state.layer + ", head " + state.head;
    const whose = Data.runs.length > 1 ? run.name + ": " : "";
    const reads = whose + (others.length
      ? "reads KV head " + kvHead + ", as " + (others.length === 1 ? "head " : "heads ") + Words.list(others) + (others.length === 1 ? " does" : " do")
      : "has KV head " + kvHead + " to itself");
    const { name: path } = run.layer(state.layer);
    const module = path ? [" · ", Words.element("span", "piece", Words.path(path))] : [];
    run.part("depth-facts").replaceChildren(reads, ...module);
  }

  /* Draws what changed; false while the layer is being unpacked. */
  function render(state, changed) {
    text.pinned(State.pinned(run).token, State.pinned(run).direction);
    const head = Heads.ready(run, state.layer, state.head, () => State.announce(["layer"]));
    if (!head) return false;
    if (head !== drawn || NEW_HEAD.some((name) => changed.has(name))) {
      words(state);
      matrix.draw(state, head);
      if (arcs) arcs.draw(state, head);
      siblings.draw(state);
      drawn = head;
    } else {
      matrix.follow(state);
      if (arcs) arcs.follow(state, head);
    }
    text.draw(state, head);
    readings.row(state, head);
    readings.statistics(state, head);
    return true;
  }

  return { run, build, render, matrix, arcs, readings, head: () => drawn };
}
