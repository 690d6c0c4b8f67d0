package report

import (
	"html/template"
	"io"
)

// Entry is a line of a page's table of contents: the id of a heading and its text.
type Entry struct{ ID, Name string }

// Site holds what a page needs in addition when a web server shows it as one of several pages. Style and scripts are
// then files of the server, not parts of the page.
type Site struct {
	Styles, Scripts []string      // addresses of the files
	Links           []Link        // to other pages, above the title
	Before          template.HTML // content before the page's first section
	Contents        []Entry       // the headings in Before
}

// Link leads to another page of a site.
type Link struct {
	Name, Address string
	Here          bool // the link leads to the page that shows it
}

// Style is the style sheet of all pages, for a server that offers it as a file.
func Style() string { return pageStyle + flameStyle }

// Script is the script of all pages, for a server that offers it as a file.
func Script() string { return pageScript }

// frame is the part of a page around its sections: head, title and table of contents.
type frame struct {
	Style           template.CSS
	Script          template.JS
	Title, Subtitle string
	Site            *Site
	Contents        []Entry
}

// Sheet is a page in the report's layout with the caller's own sections.
type Sheet struct {
	Title, Subtitle string
	Contents        []Entry
	Body            template.HTML // sections, each with a heading of the second level
	Style           string        // further style rules, for a page without a Site
	Site            *Site         // nil: the page is self-contained
}

// Frame returns the sheet's frame, for the templates.
func (s Sheet) Frame() frame {
	return frame{template.CSS(Style() + s.Style), template.JS(pageScript), s.Title, s.Subtitle, s.Site, s.Contents}
}

// HTML writes the page.
func (s Sheet) HTML(w io.Writer) error { return write(w, "sheet", s) }
