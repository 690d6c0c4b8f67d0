package machine

import (
	"os"
	"strings"
)

// sbin are the folders of administrators' programs, which PATH lacks after su without "-".
const sbin = ":/usr/local/sbin:/usr/sbin:/sbin"

// WithSbin has this process, and what it starts, look for programs in the folders of administrators too, after those of
// PATH.
func WithSbin() {
	if path := os.Getenv("PATH"); !strings.HasSuffix(path, sbin) {
		os.Setenv("PATH", strings.TrimPrefix(path+sbin, ":")) // only a name with = or 0 in it is an error
	}
}
