"""Drives Chromium without a window, by its debugging protocol over a pipe: no other package is needed.

    with Browser(program, folder) as browser:
        browser.open("file:///a.html#tab=table", 1440, 900)
        browser.wait("document.documentElement.dataset.ready === 'true'")
        browser.click("#help")
"""
import base64
import json
import os
import select
import subprocess
import time

LATEST_S = 300  # of a loaded machine


class Browser:
    def __init__(self, program, folder):
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()

        def place_pipes():  # the browser reads from 3 and writes to 4
            low = [os.dup(to_read), os.dup(to_write)]
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        command = [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
                   "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   "--user-data-dir=" + os.path.join(folder, "driven"), "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.left, self.number, self.session, self.said = b"", 0, None, []
        pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_fd)
        os.close(self.read_fd)

    def _message(self, until):
        while b"\0" not in self.left:
            ready, _, _ = select.select([self.read_fd], [], [], max(0, until - time.monotonic()))
            got = os.read(self.read_fd, 1 << 20) if ready else b""
            assert got, "the browser says no more"
            self.left += got
        text, self.left = self.left.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(message["params"])
        if message.get("method") == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            assert url.startswith(("file:", "about:", "data:", "blob:")), "asks for " + url
        return message

    def call(self, method, **params):
        self.number += 1
        text = {"id": self.number, "method": method, "params": params}
        if self.session:
            text["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(text).encode() + b"\0")
        until = time.monotonic() + LATEST_S
        while True:
            message = self._message(until)
            if message.get("id") == self.number:
                assert "error" not in message, (method, message)
                return message["result"]

    def eval(self, script):
        """The value of an expression in the page; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (script, result)
        return result["result"].get("value")

    def wait(self, condition):
        until = time.monotonic() + LATEST_S
        while not self.eval("!!(" + condition + ")"):
            assert time.monotonic() < until, condition
            time.sleep(0.03)

    def open(self, url, width=1400, height=860, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")  # the same page with another fragment loads nothing
        self.wait("location.href === 'about:blank'")
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def click(self, selector):
        x, y = self.eval("(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'nearest'});"
                         " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
                         % json.dumps(selector))
        self.click_at(x, y)

    def click_at(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
