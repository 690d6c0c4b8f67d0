package report

import (
	"strings"

	"github.com/gateweigh/gateweigh/lab/words"
)

// mark puts a run's mark ("relative, emulated CPU") on all that shows figures and may be looked at, copied or printed
// without the rest of the page: sentences, the picture, charts and tables. An empty mark changes nothing.
func (data *pageData) mark(mark string) {
	if mark == "" {
		return
	}
	m := marking{sentence: words.Capitalised(mark) + ".", inBrackets: " (" + mark + ")"}
	m.say(&data.Lead, &data.FoundCount, &data.CeilingsNote, &data.Noise)
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

// marking is a mark as a sentence, and in brackets behind a title.
type marking struct{ sentence, inBrackets string }

// say begins texts with the mark; what says nothing stays empty.
func (m marking) say(texts ...*string) {
	for _, text := range texts {
		if *text != "" {
			*text = m.sentence + " " + *text
		}
	}
}

func (m marking) groups(list []figureGroup) {
	for _, g := range list {
		m.figures(g.Figures)
		m.groups(g.Folds)
	}
}

// figures marks captions, also those that were empty.
func (m marking) figures(lists ...[]figure) {
	for _, list := range lists {
		for i := range list {
			list[i].Caption = strings.TrimSpace(m.sentence + " " + list[i].Caption)
			m.grids(&list[i].Data)
		}
	}
}

func (m marking) grids(list ...*grid) {
	for _, g := range list {
		if len(g.Rows) > 0 {
			g.Caption += m.inBrackets
		}
	}
}

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
