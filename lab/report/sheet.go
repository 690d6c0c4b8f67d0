package report

import (
	"html/template"
	"io"
)

// Entry is a line of a page's table of contents.
type Entry struct{ ID, Name string }

// Site is what a page has where a server shows it: its style and scripts are files there, not in the page.
type Site struct {
	Styles, Scripts []string // addresses
	Links           []Link   // above the title
	// Before stands before the page's first section, and Contents has its headings.
	Before   template.HTML
	Contents []Entry
}

// Link leads to another page of a site.
type Link struct {
	Name, Address string
	Here          bool // it is this page
}

// Style and Script are those of all pages, for a site that has them as files.
func Style() string { return pageStyle + flameStyle }

// Script is the script of all pages.
func Script() string { return pageScript }

// frame is what stands around a page's sections.
type frame struct {
	Style           template.CSS
	Script          template.JS
	Title, Subtitle string
	Site            *Site
	Contents        []Entry
}

// Sheet is a page that looks like a report, with sections of its caller's.
type Sheet struct {
	Title, Subtitle string
	Contents        []Entry
	Body            template.HTML // sections, each with a heading of the second level
	Style           string        // more rules, of a page without a site
	Site            *Site         // nil: the page is self-contained
}

// Frame is what stands around the sheet's sections.
func (s Sheet) Frame() frame {
	return frame{template.CSS(Style() + s.Style), template.JS(pageScript), s.Title, s.Subtitle, s.Site, s.Contents}
}

// HTML writes the page.
func (s Sheet) HTML(w io.Writer) error { return write(w, "sheet", s) }
