// What a session's page does beyond the stream: blocks of code get a head with their language and a button that copies
// them; a draft is kept while its tab is open; the up arrow brings back what one wrote before.
(() => {
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // -- Code -------------------------------------------------------------------------------------------------------
  let number = 0;
  const make = (tag, className, text = "") => {
    const element = document.createElement(tag);
    element.className = className;
    element.textContent = text;
    return element;
  };
  const copyButton = (of, what) => {
    const button = make("button", "btn-quiet copy");
    button.type = "button";
    button.dataset.copy = of;
    const word = make("span", "", "Copy");
    word.dataset.copyWord = "";
    word.setAttribute("aria-live", "polite");
    button.append(word, make("span", "visually-hidden", what));
    return button;
  };
  const dress = (block) => {
    const code = block.firstElementChild;
    const language = block.dataset.language || "";
    if (!code || block.closest(".code-block")) return;
    code.id = `code-${++number}`;
    const box = make("div", "code-block");
    const head = make("div", "code-head");
    head.append(make("span", "", language), copyButton(`#${code.id}`, language ? ` the code, ${language}` : " the code"));
    block.replaceWith(box);
    box.append(head, block);
    if (window.hljs?.getLanguage(language)) {
      code.classList.add(`language-${language}`);
      window.hljs.highlightElement(code);
    }
  };
  const dressAll = (root) => $$(".prose pre", root).forEach(dress);
  dressAll(document);
  document.addEventListener("htmx:load", (event) => dressAll(event.target.parentElement || event.target));

  // -- Drafts -----------------------------------------------------------------------------------------------------
  const KEY = `toolhub-message:${location.pathname}`;
  const field = () => document.querySelector("#composer textarea");
  const isBranch = () => ["replaces", "follows"].some((name) => field()?.form.elements[name]?.value);
  const keep = () => {
    if (isBranch()) return;
    try {
      if (field()?.value) sessionStorage.setItem(KEY, field().value);
      else sessionStorage.removeItem(KEY);
    } catch { /* full, or closed to pages */ }
  };
  const write = (text) => {
    field().value = text;
    field().dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("input", (event) => { if (event.target === field()) keep(); });
  document.addEventListener("htmx:afterSwap", keep);  // the message was taken: the new field is empty
  let draft = "";
  try { draft = sessionStorage.getItem(KEY) || ""; } catch { /* closed to pages */ }
  if (draft && !isBranch() && field() && !field().value) write(draft);
  if (isBranch()) { field().focus(); field().setSelectionRange(field().value.length, field().value.length); }

  // -- Up: what one wrote before, in a field that is empty or has nothing else in it ------------------------------------
  let back = 0;
  document.addEventListener("keydown", (event) => {
    if (event.target !== field() || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const said = $$("#turns .said-text").map((each) => each.textContent).reverse();
    if (!field().value) back = 0;
    if (!step || (field().value && field().value !== said[back - 1]) || (!back && step < 0)) return;
    event.preventDefault();
    back = Math.max(0, Math.min(said.length, back + step));
    write(back ? said[back - 1] : "");
  });
})();
