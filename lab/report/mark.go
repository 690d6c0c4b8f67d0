package report

import (
	"strings"

	"github.com/gateweigh/gateweigh/lab/words"
)

// mark adds a run's mark ("relative, emulated CPU") to everything on the page that shows figures: sentences, the
// picture, charts and tables. Each gets its own, because it may be copied or printed alone. An empty mark changes
// nothing.
func (data *pageData) mark(mark string) {
	if mark == "" {
		return
	}
	m := marking{sentence: words.Capitalised(mark) + ".", inBrackets: " (" + mark + ")"}
	m.texts(&data.Lead, &data.FoundCount, &data.CeilingsNote, &data.Noise)
	data.Picture.Title += m.inBrackets
	data.Picture.Mark = m.inBrackets
	m.groups(data.Groups)
	for i := range data.Studies {
		m.study(&data.Studies[i])
	}
	m.figures(data.Capacity, data.NoiseFigure, data.Stability)
	m.grids(&data.CostModels, &data.Ceilings, &data.Results)
	for i := range data.Further {
		m.grids(&data.Further[i])
	}
	if data.Flames != nil {
		for i := range data.Flames.Profiles {
			data.Flames.Profiles[i].Title += m.inBrackets
			data.Flames.Data[i].Title += m.inBrackets
		}
	}
}

// marking is a mark in the two forms in which it is added.
type marking struct {
	sentence   string // before a text: "Relative, emulated CPU."
	inBrackets string // after a title: " (relative, emulated CPU)"
}

// texts puts the mark before texts. An empty text stays empty.
func (m marking) texts(texts ...*string) {
	for _, text := range texts {
		if *text != "" {
			*text = m.sentence + " " + *text
		}
	}
}

// groups marks the figures of groups and of the groups in them.
func (m marking) groups(list []figureGroup) {
	for _, g := range list {
		m.figures(g.Figures)
		m.groups(g.Folds)
	}
}

// figures marks the captions of figures, also empty ones, and their tables of data.
func (m marking) figures(lists ...[]figure) {
	for _, list := range lists {
		for i := range list {
			list[i].Caption = strings.TrimSpace(m.sentence + " " + list[i].Caption)
			m.grids(&list[i].Data)
		}
	}
}

// grids marks the captions of tables that have rows.
func (m marking) grids(list ...*grid) {
	for _, g := range list {
		if len(g.Rows) > 0 {
			g.Caption += m.inBrackets
		}
	}
}

// study marks the answers, figures and tables of a study's part of the page.
func (m marking) study(part *studyPart) {
	part.Answers.Note = strings.TrimSpace(m.sentence + " " + part.Answers.Note)
	for _, fold := range part.Figures {
		for i := range fold.Items {
			fold.Items[i].Caption += m.inBrackets
			m.figures(fold.Items[i].Figures)
		}
	}
	for _, fold := range part.Tables {
		for i := range fold.Items {
			fold.Items[i].Caption += m.inBrackets
		}
	}
}
