package main

import "errors"

// pathFlag is the value of a flag that names a file or folder. An empty value is an error: it usually comes from a
// shell variable that is not set.
type pathFlag string

// Set takes the value and refuses an empty one.
func (p *pathFlag) Set(to string) error {
	if to == "" {
		return errors.New("it is empty: name a place, or leave the flag out")
	}
	*p = pathFlag(to)
	return nil
}

func (p *pathFlag) String() string { return string(*p) }

// Type is the word for the value in the help.
func (p *pathFlag) Type() string { return "string" }
