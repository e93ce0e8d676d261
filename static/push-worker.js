// Shows the notifications that a tool sends to this browser. Runs without a page.
self.addEventListener("push", (event) => {
  let message = {};
  try { message = event.data ? event.data.json() : {}; } catch { /* not ours */ }
  const text = (value, most) => String(value ?? "").slice(0, most);
  event.waitUntil(self.registration.showNotification(text(message.title, 100) || "toolhub", {
    body: text(message.body, 1000),
    data: { url: text(message.url, 500) },
  }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  // A path of this site, and nothing else.
  const url = new URL(event.notification.data?.url || "/", self.location.origin);
  event.waitUntil(self.clients.openWindow(url.origin === self.location.origin ? url.href : "/"));
});
