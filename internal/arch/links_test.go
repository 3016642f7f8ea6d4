package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdCode = regexp.MustCompile("`[^`\n]*`")
	reader = regexp.MustCompile(`^For [^:]+: `)
)

// markdown returns the text of each Markdown page in root, by its path below root.
func markdown(t *testing.T, root string) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := os.ReadFile(name)
		below, _ := filepath.Rel(root, name)
		pages[filepath.ToSlash(below)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// prose returns the page without blocks of code.
func prose(page string) string {
	var kept []string
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(prose(page)) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		for name, n := anchor, 1; ; n++ {
			if !found[name] {
				found[name] = true
				break
			}
			name = fmt.Sprintf("%s-%d", anchor, n)
		}
	}
	return found
}

// brokenLinks returns the relative links of the pages that lead to no file, folder or heading.
func brokenLinks(root string, pages map[string]string) (broken []string) {
	for name, text := range pages {
		for _, match := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(prose(text), ""), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, ":") {
				continue // another site
			}
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil && pages[file] == "" {
				broken = append(broken, fmt.Sprintf("%s links to %s, which does not exist", name, match[1]))
			} else if page, ok := pages[file]; anchor != "" && (!ok || !anchors(page)[anchor]) {
				broken = append(broken, fmt.Sprintf("%s links to %s, a heading that does not exist", name, match[1]))
			}
		}
	}
	return broken
}

func TestNoLinkIsBroken(t *testing.T) {
	t.Parallel()
	pages := markdown(t, "../..")
	if len(pages) < 20 {
		t.Fatalf("got %d pages", len(pages))
	}
	for _, link := range brokenLinks("../..", pages) {
		t.Error(link)
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	page := "# One page\n[file](none.md) [heading](#no-page) [other](b.md#no)\n" + // broken
		"[here](#one-page) [there](b.md#two) [site](https://example.com/x.md) `[code](none.md)`\n```\n[block](none.md)\n```\n"
	got := brokenLinks(root, map[string]string{"a.md": page, "b.md": "## Two\n"})
	if len(got) != 3 {
		t.Errorf("got %d broken links, want 3: %q", len(got), got)
	}
}

// Each page of docs names its reader and can be read in one sitting.
func TestPagesOfDocsAreShortAndNameTheirReader(t *testing.T) {
	t.Parallel()
	for name, text := range markdown(t, "../../docs") {
		lines := strings.Split(text, "\n")
		if len(lines) > 300 {
			t.Errorf("docs/%s has %d lines, at most 299", name, len(lines)-1)
		}
		if folder := path.Dir(name); (folder == "decisions" || folder == "measured") && len(text) > 6<<10 {
			t.Errorf("docs/%s has %d bytes, at most 6 KiB", name, len(text))
		}
		first := lines[0]
		for _, line := range lines[1:] {
			if !strings.HasPrefix(first, "# ") {
				break
			}
			first = line
			if first == "" {
				first = "# " // the title and empty lines come before it
			}
		}
		if !reader.MatchString(first) {
			t.Errorf("docs/%s does not begin with its reader, as in %q: %q", name, "For operators: …", first)
		}
	}
}
