package machine

import (
	"os"
	"strings"
)

// sbin is the folders of administrators' programs. PATH may lack them, for instance after su without "-".
const sbin = ":/usr/local/sbin:/usr/sbin:/sbin"

// WithSbin appends the folders of administrators' programs to the PATH of this process and of programs that it starts.
func WithSbin() {
	if path := os.Getenv("PATH"); !strings.HasSuffix(path, sbin) {
		os.Setenv("PATH", strings.TrimPrefix(path+sbin, ":")) // fails only for a malformed name
	}
}
