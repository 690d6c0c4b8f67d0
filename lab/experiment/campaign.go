package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/textfile"
)

// Campaign is a campaign file: several experiments whose blocks are spread over the nodes of a scheduler.
type Campaign struct {
	Experiments []string // names of shipped experiments, and files, relative to the campaign file
	Slurm       Slurm    // options for experiments whose own [slurm] does not set them
}

var campaignFields = slices.Concat([]fieldOf[Campaign]{
	field("experiments", List(text), func(c *Campaign) *[]string { return &c.Experiments }).
		means("experiments of the campaign: names, or files relative to this one"),
}, inTable("slurm", slurmKeys, func(c *Campaign) *Slurm { return &c.Slurm }))

// ReadCampaign reads a campaign file. isCampaign is false where the file lacks the key experiments, and so is an
// experiment. The error for a campaign file with mistakes is strict.Problems.
func ReadCampaign(path string) (c Campaign, isCampaign bool, err error) {
	data, err := textfile.Read(path, maxFileBytes)
	if err != nil {
		return c, false, fmt.Errorf("reading campaign: %w", err)
	}
	entries, bad := read(path, data)
	if bad != nil || !slices.ContainsFunc(entries, func(e strict.Entry) bool { return e.Key() == "experiments" }) {
		return c, false, nil // what is wrong with it shows when it is read as an experiment
	}
	problems := strict.Assign(path, entries, func(en strict.Entry) (descend bool, err error) {
		if en.Key() == "slurm" {
			if _, isTable := en.Value.(map[string]any); !isTable {
				return false, errors.New("must be a table: [slurm]")
			}
			return true, nil
		}
		for _, f := range campaignFields {
			if f.key == en.Key() {
				return false, f.set(&c, en.Value)
			}
		}
		return false, errors.New("unknown key" +
			cmp.Or(near.Suggestion(en.Key(), keysOf(campaignFields)), ": a campaign file has experiments and [slurm]"))
	})
	for i, name := range c.Experiments {
		if filepath.Ext(name) == ".toml" && !filepath.IsAbs(name) {
			c.Experiments[i] = filepath.Join(filepath.Dir(path), name)
		}
	}
	return c, true, problems.Err()
}

// WithDefaults returns an experiment's options, with its campaign's for those that are not set.
func (s Slurm) WithDefaults(campaign Slurm) Slurm {
	return Slurm{
		Partition: cmp.Or(s.Partition, campaign.Partition), Account: cmp.Or(s.Account, campaign.Account),
		Constraint: cmp.Or(s.Constraint, campaign.Constraint), Container: cmp.Or(s.Container, campaign.Container),
		TimeLimit: cmp.Or(s.TimeLimit, campaign.TimeLimit), Nodes: cmp.Or(s.Nodes, campaign.Nodes),
	}
}
