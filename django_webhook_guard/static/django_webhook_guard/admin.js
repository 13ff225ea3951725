"use strict";

// Copies the text of the element that a button names. Without a script, or without a clipboard, there is no button.
document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("button[data-webhook-copy]")) {
        const from = document.getElementById(button.dataset.webhookCopy);
        if (!from || !navigator.clipboard) {
            continue;
        }
        button.hidden = false;
        button.addEventListener("click", async () => {
            await navigator.clipboard.writeText(from.textContent);
            button.textContent = button.dataset.webhookCopied;
        });
    }
});
