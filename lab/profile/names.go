package profile

import (
	"path"
	"regexp"
	"strings"
)

// Distinguish gives the frames of recordings that are looked at together short names. Functions that would have the
// same name keep their whole ones, and files of the same name their paths.
func Distinguish(recordings ...*Recording) {
	names := map[Frame]map[Frame]bool{} // short to whole
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
	several := map[Frame]bool{} // short names that stand for functions of several names
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

// shortFrame is a frame with the short name of its function and that of its file.
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

// perfMapFile is the name of the file in which a program lists the functions that it has compiled while it ran. No Go
// program does.
var perfMapFile = regexp.MustCompile(`^perf-\d+\.map$`)

// goName is how Go names a function: the path of its package, a dot, and its name in the package, which in the names of
// methods begins with a parenthesis. In paths Go escapes what else could stand there.
var goName = regexp.MustCompile(`^(?:[\w.~%+-]+/)+([\w~%+-]+\.(?:[\pL_(]|·).*)$`)

// withoutGoPath is a function's name without the path that Go puts in front of a package's: "admission.(*Judge).Up".
// Names of other languages are left as they are: what a slash in them means is theirs to say.
func withoutGoPath(function string) string {
	if strings.Contains(function, "::") {
		return function // C++ divides by operators, and Rust has paths of its own
	}
	if name := goName.FindStringSubmatch(function); name != nil {
		return name[1]
	}
	return function
}
