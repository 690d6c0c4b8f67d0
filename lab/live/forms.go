package live

import (
	_ "embed"
	"html/template"
)

//go:embed live.html.tmpl
var formSource string

// forms are the sections of pages.
var forms = template.Must(template.New("live").Parse(formSource))
