package live

import (
	_ "embed"
	"html/template"
)

//go:embed live.html.tmpl
var formSource string

// forms has the templates of the pages' sections.
var forms = template.Must(template.New("live").Parse(formSource))
