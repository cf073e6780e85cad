"""A preprocessor of mdBook: makes links that leave docs/ lead somewhere in the site.

Pages link to files by their relative paths in the tree, as any git host shows them. In the site

- a file outside docs/ that is text becomes a page below tree/, whether SUMMARY.md names it or not;
- a folder becomes a page that lists its files;
- the folder of a package becomes the package's API documentation, below api/;
- `<!-- packages -->` becomes a table of all packages.

A page of docs/ that neither SUMMARY.md nor the README.md of its folder names is an error. A link to
what is not there stays as it is: check-links.py finds it in the site.
"""

import json
import os
import re
import subprocess
import sys

FENCES = {".proto": "protobuf", ".rs": "rust,noplayground", ".sh": "bash", ".toml": "toml"}
PAGE_BYTES_MAX = 100_000
PACKAGES = "<!-- packages -->"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
FENCE = re.compile(r"^ *(```|~~~)")


def packages(root):
    """The packages of the workspace: folder from the root, description, first page in api/."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1"]
    answer = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    found = {}
    for package in json.loads(answer)["packages"]:
        documented = [of["name"] for of in package["targets"] if {"lib", "bin"} & set(of["kind"])]
        if documented:
            folder = os.path.relpath(os.path.dirname(package["manifest_path"]), root)
            page = f"api/{documented[0].replace('-', '_')}/index.html"
            found[folder] = (package["name"], package["description"], page)
    return found


def is_text(path):
    """Whether a file becomes a page."""
    if os.path.getsize(path) > PAGE_BYTES_MAX:
        return False
    try:
        with open(path, encoding="utf-8") as file:
            file.read()
    except UnicodeDecodeError:
        return False
    return not path.endswith((".csv", ".svg"))


def chapter(name, content, path, source_path):
    """A chapter as mdBook has it: paths are relative to docs/."""
    return {
        "name": name,
        "content": content,
        "number": None,
        "sub_items": [],
        "path": path,
        "source_path": source_path,
        "parent_names": [],
    }


def put_below(parent, page):
    parent["sub_items"].append({"Chapter": page})
    page["number"] = [*parent["number"], len(parent["sub_items"])]
    page["parent_names"] = [*parent["parent_names"], parent["name"]]


class Site:
    def __init__(self, context, book):
        self.docs = context["root"]
        self.root = os.path.dirname(self.docs)
        self.packages = packages(self.root)
        # Where the site has what lies at a path of the tree, both from their roots.
        self.places = {}
        self.added = []
        for readme in list(self.chapters(book["items"])):
            self.follow(readme)
        named = list(self.chapters(book["items"]))
        for page in named:
            source = os.path.normpath(os.path.join("docs", page["source_path"]))
            page["path"] = self.place(source, page["path"])
            self.places[source] = page["path"]
        for page in named:
            self.mend(page)
        self.all_pages_are_named()

    def all_pages_are_named(self):
        for folder, _, files in os.walk(self.docs):
            for name in files:
                page = os.path.relpath(os.path.join(folder, name), self.root)
                if name.endswith(".md") and name != "SUMMARY.md" and page not in self.places:
                    sys.exit(f"{page} is named neither in docs/SUMMARY.md nor in its folder's README.md")

    def chapters(self, items):
        """All chapters with a page, in the order of SUMMARY.md."""
        for item in items:
            page = item.get("Chapter") if isinstance(item, dict) else None
            if page:
                if page["source_path"]:
                    yield page
                yield from self.chapters(page["sub_items"])

    def follow(self, readme):
        """Puts the pages of a folder that its README.md links to below it."""
        folder, name = os.path.split(readme["source_path"])
        if name != "README.md" or folder in ("", ".."):
            return
        for link in LINK.findall(readme["content"]):
            file = os.path.join(self.docs, folder, link)
            if "/" in link or not link.endswith(".md") or not os.path.exists(file):
                continue
            with open(file, encoding="utf-8") as page:
                text = page.read()
            title = text.split("\n", 1)[0].removeprefix("# ")
            path = f"{folder}/{link}"
            put_below(readme, chapter(title, text, path, path))

    def place(self, source, path):
        """The page of a file of the tree; in docs/ as mdBook has it."""
        return f"tree/{source}" if os.path.relpath(source, "docs").startswith("..") else path

    def mend(self, page):
        """Has the links of a page lead to where the site has what they name."""
        source = os.path.normpath(os.path.join("docs", page["source_path"]))
        lines = page["content"].split("\n")
        fenced = False
        for number, line in enumerate(lines):
            if FENCE.match(line):
                fenced = not fenced
            elif line.strip() == PACKAGES:
                lines[number] = self.table(page["path"])
            elif not fenced:
                lines[number] = LINK.sub(lambda link: self.lead(source, page["path"], link[1]), line)
        page["content"] = "\n".join(lines)

    def lead(self, source, page, link):
        if "://" in link or link.startswith("mailto:"):
            return link
        target = os.path.normpath(os.path.join(os.path.dirname(source), link))
        place = self.find(target)
        return os.path.relpath(place, os.path.dirname(page)) if place else link

    def find(self, target):
        """Where the site has what lies at a path of the tree; None if it is nowhere."""
        path = os.path.join(self.root, target)
        if target in self.places or target.startswith("..") or not os.path.exists(path):
            return self.places.get(target)
        if target in self.packages:
            return self.packages[target][2]
        if os.path.isdir(path):
            return self.places.get(f"{target}/README.md") or self.list(target, path)
        if target.startswith("docs/"):
            return os.path.relpath(target, "docs")    # mdBook copies it
        return self.show(target, path) if is_text(path) else None

    def list(self, target, path):
        page = self.add(target, f"{target}/index.md")
        entries = []
        for name in sorted(os.listdir(path)):
            if os.path.isdir(os.path.join(path, name)):
                entries.append(f"- {name}/")
                continue
            place = self.find(f"{target}/{name}")
            link = place and os.path.relpath(place, os.path.dirname(page["path"]))
            entries.append(f"- [{name}]({link})" if link else f"- {name}")
        page["content"] = f"# {target}\n\n" + "\n".join(entries)
        return page["path"]

    def show(self, target, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if target.endswith(".md"):
            page = self.add(target, target)
            page["content"] = text
            self.mend(page)
        else:
            page = self.add(target, f"{target}.md")
            fence = "`" * (2 + max([1, *map(len, re.findall("`{2,}", text))]))
            language = FENCES.get(os.path.splitext(target)[1], "text")
            page["content"] = f"# {target}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"
        return page["path"]

    def add(self, target, file):
        """A page that SUMMARY.md does not name."""
        inside = target.startswith("docs/")
        path = os.path.relpath(file, "docs") if inside else f"tree/{file}"
        page = chapter(target, "", path, os.path.relpath(target, "docs"))
        self.places[target] = page["path"]
        self.added.append(page)
        return page

    def table(self, page):
        rows = ["| package | what it is |", "|---|---|"]
        for folder, (name, description, first) in sorted(self.packages.items()):
            link = os.path.relpath(first, os.path.dirname(page))
            rows.append(f"| [`{name}`]({link}), in `{folder}` | {description} |")
        return "\n".join(rows)


def main():
    if sys.argv[1:2] == ["supports"]:
        sys.exit(sys.argv[2] != "html")
    context, book = json.load(sys.stdin)
    site = Site(context, book)
    if site.added:
        files = chapter("Files that pages link to", "# Files that pages link to\n\n", "tree/index.md", None)
        files["number"] = [len(book["items"]) + 1]
        for page in sorted(site.added, key=lambda page: page["path"]):
            link = os.path.relpath(page["path"], "tree")
            files["content"] += f"- [{page['name']}]({link})\n"
            put_below(files, page)
        book["items"].append({"Chapter": files})
    json.dump(book, sys.stdout)


main()
