package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// percent is a flag's value such as 5%. The % sign is required: 5 could mean 5 % or 500 %, and 0.05 could mean 0.05 %
// or 5 %. A gate with the wrong limit is worse than no gate.
type percent struct {
	share        float64 // 0.05 is 5 %
	given        bool
	above, below float64 // bounds of share, exclusive; both 0: from 0 to maxShare
}

// maxShare bounds a percentage that has no other bound: 10,000 %.
const maxShare = 100

var percentForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+)? ?%$`)

// String returns the value, such as "5%". Before the flags are read this is the default, which the help shows.
func (p *percent) String() string {
	if !p.given {
		return ""
	}
	return strconv.FormatFloat(math.Round(p.share*1e8)/1e6, 'f', -1, 64) + "%"
}

// Set parses the flag's value.
func (p *percent) Set(text string) error {
	if !percentForm.MatchString(text) {
		if v, err := strconv.ParseFloat(text, 64); err == nil && v >= 0 && v <= 100*maxShare {
			return fmt.Errorf("%s has no %% sign: write %s%%", text, text)
		}
		return fmt.Errorf("want a percentage such as 5%% or 2.5%%")
	}
	v, err := strconv.ParseFloat(strings.TrimRight(text, " %"), 64)
	if err != nil {
		return fmt.Errorf("want a percentage such as 5%% or 2.5%%: %w", err)
	}
	share := v / 100
	switch {
	case p.below == 0 && share > maxShare:
		return fmt.Errorf("more than %d%%", 100*maxShare)
	case p.below > 0 && (share <= p.above || share >= p.below):
		return fmt.Errorf("want more than %g%% and less than %g%%", 100*p.above, 100*p.below)
	}
	p.share, p.given = share, true
	return nil
}

// Type names the value in the help.
func (p *percent) Type() string { return "percent" }
