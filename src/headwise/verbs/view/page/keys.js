/* Keys that hold everywhere on the page, and the help that lists them. */
const Keys = (function () {
  const help = document.getElementById("help");

  const ANYWHERE = {
    d: State.toggleDirection,
    k: State.toggleDiscount,
    m: State.toggleShow,
    "?": () => help.showModal(),
  };

  /* In the open head the arrows move the chosen token; Escape goes back to the map. */
  function inDepth(event, run) {
    const moves = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    if (event.key === "Escape") MapZone.focusPinned(run);
    else if (event.key in moves) {
      const state = State.current(run);
      const last = State.tokensOf(run, state.direction).length - 1;
      State.pin({ token: Math.min(last, Math.max(0, state.token + moves[event.key])) }, run);
    } else return;
    event.preventDefault();
  }

  function build() {
    document.addEventListener("keydown", (event) => {
      if (help.open || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
      const inside = Data.runs.find((run) => run.part("bench").contains(event.target));
      if (event.key in ANYWHERE) {
        ANYWHERE[event.key]();
        event.preventDefault();
      } else if (inside) inDepth(event, inside);
      // Up and down scroll the page until the map has the focus.
      else if (event.target === document.body && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
        MapZone.focusPinned(Data.runs[0]);
        event.preventDefault();
      }
    });
    document.getElementById("help-open").addEventListener("click", () => help.showModal());
    document.getElementById("help-close").addEventListener("click", () => help.close());
  }

  return { build };
})();
