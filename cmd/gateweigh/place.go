package main

import "errors"

// place is a flag's file or folder. An empty one, as of a variable that is not set, is an error.
type place string

// Set takes a value that names something.
func (p *place) Set(to string) error {
	if to == "" {
		return errors.New("it is empty: name a place, or leave the flag out")
	}
	*p = place(to)
	return nil
}

func (p *place) String() string { return string(*p) }

// Type is the word for the value in the help.
func (p *place) Type() string { return "string" }
