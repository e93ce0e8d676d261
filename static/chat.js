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

  // -- Files: chosen, dropped or pasted; they wait in the page until the message is taken ---------------------------------
  const sizeText = (size) => {
    const [unit, by] = size < 1000 ? ["byte", 1] : size < 1e6 ? ["kilobyte", 1000] : ["megabyte", 1e6];
    return new Intl.NumberFormat("en", { style: "unit", unit, unitDisplay: by > 1 ? "short" : "long", maximumFractionDigits: 1 })
      .format(size / by);
  };
  const input = () => document.querySelector("#id_files");
  let files = [];
  const complain = (text) => {
    const place = document.querySelector("#files-error");
    place.hidden = !text;
    place.querySelector("span").textContent = text;
  };
  const show = () => {
    if (!input()) return;
    const kept = new DataTransfer();
    files.forEach((file) => kept.items.add(file));
    input().files = kept.files;
    const list = document.querySelector("#chosen-files");
    list.replaceChildren(...files.map((file) => {
      const chip = make("li", "chip", `${file.name}, ${sizeText(file.size)}`);
      const remove = make("button", "btn-quiet", "×");
      remove.type = "button";
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => {
        files = files.filter((each) => each !== file);
        complain("");
        show();
        field().focus();
      });
      chip.append(remove);
      return chip;
    }));
    list.hidden = !files.length;
  };
  const add = (added) => {
    const all = [...files, ...added], most = Number(input()?.dataset.most);
    if (!added.length || !input()) return;
    if (all.reduce((sum, file) => sum + file.size, 0) > most) {
      complain(`The files of one message have at most ${sizeText(most)}: not attached.`);
    } else {
      files = all;
      complain("");
    }
    show();
  };
  document.addEventListener("change", (event) => { if (event.target === input()) add([...input().files]); });
  document.addEventListener("paste", (event) => {
    if (event.target !== field() || !event.clipboardData?.files.length) return;
    event.preventDefault();
    add([...event.clipboardData.files]);
  });
  const drops = (event) => input() && [...(event.dataTransfer?.types || [])].includes("Files");
  const mark = (isOver) => document.querySelector("#composer")?.classList.toggle("is-dropped-on", isOver);
  document.addEventListener("dragover", (event) => { if (drops(event)) { event.preventDefault(); mark(true); } });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) mark(false); });
  document.addEventListener("drop", (event) => {
    if (!drops(event)) return;
    event.preventDefault();
    mark(false);
    add([...event.dataTransfer.files]);
  });
  // A message that was taken took its files along; one that was refused has them still.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.requestConfig?.elt?.id === "composer" && event.detail.xhr.status < 300) files = [];
  });
  document.addEventListener("htmx:afterSwap", () => { if (input() && input().files.length !== files.length) show(); });

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
