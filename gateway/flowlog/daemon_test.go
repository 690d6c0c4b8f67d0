package flowlog

import (
	"context"
	"fmt"
	"os"
)

// daemon is a log in a process of its own, to be killed.
func daemon(folder string) {
	p := &people{}
	p.set("ann")
	l, err := Open(config(folder, p))
	if err == nil {
		fmt.Println("ready")
		err = l.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
