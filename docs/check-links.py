"""Fails if a link in the site leads nowhere: a page, a file or a heading that is not there.

    check-links.py SITE

Pages below SITE/api are rustdoc's, which checks its own links; links to them are checked.
"""

import html.parser
import os
import sys
import urllib.parse

ATTRIBUTES = {"a": "href", "img": "src", "link": "href", "script": "src", "iframe": "src", "object": "data"}


class Page(html.parser.HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.anchors = {""}
        self.links = []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values.get("id"), values.get("name") if tag == "a" else None}
        link = values.get(ATTRIBUTES.get(tag))
        if link:
            self.links.append((self.getpos()[0], link))


def pages(site):
    for folder, folders, files in os.walk(site):
        if folder == site and "api" in folders:
            folders.remove("api")
        yield from (os.path.join(folder, name) for name in files if name.endswith(".html"))


def main(site):
    read = {}

    def page(path):
        if path not in read:
            read[path] = Page(path)
        return read[path]

    def fault(path, link):
        """What is wrong with a link; None if nothing is."""
        scheme, host, target, _, anchor = urllib.parse.urlsplit(link)
        if scheme or host:
            return None
        target = urllib.parse.unquote(target)
        if target.startswith("/"):
            return "does not hold where the site is not at the root of its host"
        target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if os.path.relpath(target, site).startswith(".."):
            return "leaves the site"
        if os.path.isdir(target):
            target = os.path.join(target, "index.html")
        if not os.path.exists(target):
            return "leads nowhere"
        if anchor and target.endswith(".html"):
            if urllib.parse.unquote(anchor) not in page(target).anchors:
                return "is no heading there"
        return None

    links = 0
    broken = []
    for path in sorted(pages(site)):
        for line, link in page(path).links:
            links += 1
            what = fault(path, link)
            if what:
                broken.append(f"{os.path.relpath(path, site)}:{line}: {link} {what}")
    for line in broken:
        print(line, file=sys.stderr)
    print(f"{links} links in {site}, {len(broken)} broken")
    return 1 if broken or not links else 0


if len(sys.argv) != 2:
    sys.exit(__doc__)
sys.exit(main(os.path.normpath(sys.argv[1])))
