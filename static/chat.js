// What a session's page does with answers: blocks of code get a head with their language and a button that copies them.
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
})();
