// Short names for the functions and files of a recording, for readers of reports.

package profile

import (
	"path"
	"regexp"
	"strings"
)

// Distinguish gives the frames of recordings that are shown together short names (Recording.Frames). A function whose
// short name another function has too keeps its whole name. A file whose short name another file has too keeps its
// path.
func Distinguish(recordings ...*Recording) {
	names := map[Frame]map[Frame]bool{} // by a short frame, all whole frames that it stands for
	each := func(fn func(whole Frame, into *Frame)) {
		for _, rec := range recordings {
			for i, whole := range rec.Whole {
				fn(whole, &rec.Frames[i])
			}
		}
	}
	collect := func(shorten func(Frame) Frame) {
		clear(names)
		each(func(whole Frame, _ *Frame) {
			short := shorten(whole)
			if names[short] == nil {
				names[short] = map[Frame]bool{}
			}
			names[short][whole] = true
		})
	}
	collect(shortFrame)
	several := map[Frame]bool{} // short frames that stand for functions with different whole names
	for s, list := range names {
		functions := map[string]bool{}
		for whole := range list {
			functions[whole.Func] = true
		}
		several[s] = len(functions) > 1
	}
	named := func(whole Frame) Frame {
		s := shortFrame(whole)
		if several[s] {
			s.Func = whole.Func
		}
		return s
	}
	collect(named)
	each(func(whole Frame, into *Frame) {
		*into = named(whole)
		if len(names[*into]) > 1 {
			into.Module = whole.Module
		}
	})
}

// shortFrame returns a frame with short names: of the function the name without Go's path, of the file that without its
// folder.
func shortFrame(whole Frame) Frame {
	if !strings.HasPrefix(whole.Module, "/") {
		return whole
	}
	base := path.Base(whole.Module)
	if perfMapFile.MatchString(base) {
		return Frame{whole.Func, base}
	}
	return Frame{withoutGoPath(whole.Func), base}
}

// perfMapFile matches the name of a file in which a program lists functions that it compiled while it ran, as
// JavaScript engines do. No Go program has such a file.
var perfMapFile = regexp.MustCompile(`^perf-\d+\.map$`)

// goName matches a function's name in Go: the path of its package, a dot, and its name in the package. The name of a
// method may begin with a parenthesis. In the path, Go escapes all other characters.
var goName = regexp.MustCompile(`^(?:[\w.~%+-]+/)+([\w~%+-]+\.(?:[\pL_(]|·).*)$`)

// withoutGoPath removes the path in front of a package's name from the name of a Go function: "admission.(*Judge).Up".
// It leaves names of other languages as they are, because a slash may mean something else there.
func withoutGoPath(function string) string {
	if strings.Contains(function, "::") {
		return function // C++ divides by operators, and Rust has paths of its own
	}
	if name := goName.FindStringSubmatch(function); name != nil {
		return name[1]
	}
	return function
}
