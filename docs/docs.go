// Package docs holds the pages that `carillon docs` prints. It imports nothing of ours.
package docs

import (
	"embed"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed cli.md coming-from.md dst.md glossary.md operations.md reliability.md traces.md guides/*.md
var files embed.FS

// Page is a page for people who use or operate Carillon, as Markdown.
type Page struct {
	Topic string `json:"topic"` // the name of its file, without the folder and the ending
	Title string `json:"title"` // its first heading
	Text  string `json:"text,omitempty"`
}

// Pages returns all pages, in the order of their topics.
func Pages() []Page {
	var pages []Page
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		pages = append(pages, Page{Topic: strings.TrimSuffix(path.Base(name), ".md"), Title: title, Text: string(text)})
		return err
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	slices.SortFunc(pages, func(a, b Page) int { return strings.Compare(a.Topic, b.Topic) })
	return pages
}
