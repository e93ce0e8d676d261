// The matrix of roles: one tab stop, arrow keys, and cells that are saved when they are pressed, or collected for a preview.
// Without it each cell is a button of the form, and its answer is the preview.
(() => {
  const grid = document.querySelector(".matrix");
  if (!grid) return;
  const form = grid.closest("form"), collect = document.querySelector("#collect");
  const REST_MS = 500;  // a cell that is pressed on within this time is saved once
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // -- What a cell shows, as in capabilities/access/roles/matrix.py --------------------------------------------------
  const WORDS = { allow: "allowed", deny: "denied", "": "not listed" };
  const NEXT = { "": "allow", allow: "deny", deny: "" };
  const BEFORE = { allow: "", deny: "allow", "": "deny" };
  const effectOf = (button) => BEFORE[button.value];
  const storedOf = (button) => button.name.split(":")[3];
  const isTool = (button) => button.name.split(":")[1] === "t";
  const rowOf = (cell) => cell.parentElement;
  const opens = (button) => {
    const cell = button.parentElement;
    const above = $("button, i", $(".category-line", cell.closest("tbody")).cells[cell.cellIndex]);
    return above.matches("i") ? above.matches(".a") : effectOf(above) === "allow";
  };
  const draw = (button, effect) => {
    const inherits = isTool(button) && opens(button);
    const differs = isTool(button) && effect !== "" && (effect === "allow") !== inherits;
    button.value = NEXT[effect];
    button.className = effect[0] || (inherits ? "i" : "n");
    button.textContent = WORDS[effect];
    if (isTool(button) && !effect) button.textContent += inherits ? ", on" : ", off";
    if (differs) button.textContent += ", differs from its category";
    button.parentElement.classList.toggle("differs", differs);
    button.parentElement.classList.toggle("is-changed", effect !== storedOf(button));
    if (!isTool(button)) drawBelow(button);
  };
  const drawBelow = (button) => {
    const cell = button.parentElement;
    for (const row of $$(".tool-line", cell.closest("tbody"))) {
      const below = row.cells[cell.cellIndex] && $("button", row.cells[cell.cellIndex]);
      if (below) draw(below, effectOf(below));
    }
  };

  // -- One tab stop ---------------------------------------------------------------------------------------------------
  const stopOf = (cell) => $("a, button", cell) || cell;
  let stop = null;
  const stopAt = (element) => {
    if (stop) stop.tabIndex = -1;
    stop = element;
    stop.tabIndex = 0;
  };
  const setUp = (root) => {
    for (const each of $$("a, button", root)) {
      each.tabIndex = -1;
      if (each.name) each.type = "button";
    }
    if (!stop || !grid.contains(stop)) stopAt($("td button", grid) || stopOf(grid.rows[0].cells[0]));
    else stopAt(stop);
  };
  const go = (row, column) => {
    const cells = grid.rows[Math.min(Math.max(row, 0), grid.rows.length - 1)].cells;
    const element = stopOf(cells[Math.min(Math.max(column, 0), cells.length - 1)]);
    stopAt(element);
    element.focus();
  };
  const MOVES = {
    ArrowUp: (row, column) => [row - 1, column],
    ArrowDown: (row, column) => [row + 1, column],
    ArrowLeft: (row, column) => [row, column - 1],
    ArrowRight: (row, column) => [row, column + 1],
    PageUp: (row, column) => [row - 10, column],
    PageDown: (row, column) => [row + 10, column],
    Home: (row, column, all) => [all ? 0 : row, 0],
    End: (row, column, all) => [all ? Infinity : row, Infinity],
  };
  grid.addEventListener("keydown", (event) => {
    const cell = event.target.closest("th, td");
    if (event.key === "z" && (event.ctrlKey || event.metaKey)) $("[data-undo]")?.click();
    else if (event.key === " " && event.target.matches("a")) event.target.click();
    else if (MOVES[event.key] && !event.altKey) {
      go(...MOVES[event.key](rowOf(cell).rowIndex, cell.cellIndex, event.ctrlKey || event.metaKey));
    } else return;
    event.preventDefault();
  });
  grid.addEventListener("focusin", (event) => {
    const cell = event.target.closest("th, td");
    if (cell) stopAt(event.target);
  });

  // -- Change a cell --------------------------------------------------------------------------------------------------
  const kept = () => $$("input[name$=':*']", form);
  const keep = (button) => {
    const name = button.name.replace(/[^:]*$/, "*");
    kept().find((each) => each.name === name)?.remove();
    if (effectOf(button) !== storedOf(button)) {
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value: effectOf(button) }));
    }
    $("[data-change-count]", form).textContent = kept().length;
    collect.disabled = kept().length > 0;
  };
  const save = (button, values) => {
    const cell = button.parentElement, row = rowOf(cell), column = cell.cellIndex;
    const asked = htmx.ajax("POST", location.href, { source: button, target: cell, swap: "outerHTML", values });
    asked.then(() => {
      const fresh = row.cells[column], isHere = document.activeElement === document.body || !stop.isConnected;
      const now = $("button", fresh);
      setUp(fresh);
      if (now && now !== button && !isTool(now)) drawBelow(now);
      if (now && isHere) { stopAt(now); now.focus({ preventScroll: true }); }
    });
  };
  let waiting = null, timer = 0;
  const flush = () => {
    clearTimeout(timer);
    const button = waiting;
    waiting = null;
    if (button && effectOf(button) !== storedOf(button)) save(button, { [button.name]: effectOf(button), now: "1" });
  };
  const press = (button) => {
    if (waiting && waiting !== button) flush();
    draw(button, button.value);
    if (collect.checked || kept().length) { keep(button); return; }
    waiting = button;
    clearTimeout(timer);
    timer = setTimeout(flush, REST_MS);
  };
  grid.addEventListener("click", (event) => {
    const button = event.target.closest("td button");
    if (button) press(button);
  });
  grid.addEventListener("focusout", (event) => { if (event.target === waiting) flush(); });
  addEventListener("pagehide", () => {
    if (!waiting || effectOf(waiting) === storedOf(waiting)) return;
    const body = new FormData();
    body.set("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
    body.set(waiting.name, effectOf(waiting));
    body.set("now", "1");
    navigator.sendBeacon(location.href, body);
  });
  document.addEventListener("click", (event) => {
    const undo = event.target.closest("[data-undo]");
    if (!undo) return;
    flush();
    const button = $$("td button", grid).find((each) => each.name === undo.dataset.undo);
    const values = { [undo.dataset.undo]: undo.value, now: "1", undo: "1" };
    if (button) { stopAt(button); save(button, values); }
    else htmx.ajax("POST", location.href, { source: undo, target: "#matrix-saved", swap: "none", values });
  });

  grid.addEventListener("htmx:load", (event) => setUp(event.target));
  collect.disabled = kept().length > 0;
  setUp(grid);
})();
