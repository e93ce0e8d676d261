// Runs in the head, before anything is painted: light or dark, as chosen here or by the system.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try { return localStorage.getItem("theme"); } catch { return null; }
  };
  const apply = () => {
    document.documentElement.dataset.bsTheme = chosen() || (dark.matches ? "dark" : "light");
  };
  apply();
  dark.addEventListener("change", apply);
  window.toolhubTheme = {
    // Light, dark, and back to what the system says.
    toggle() {
      const next = document.documentElement.dataset.bsTheme === "dark" ? "light" : "dark";
      const system = dark.matches ? "dark" : "light";
      try {
        if (next === system) localStorage.removeItem("theme"); else localStorage.setItem("theme", next);
      } catch { /* private windows keep nothing */ }
      document.documentElement.dataset.bsTheme = next;
    },
  };
})();
