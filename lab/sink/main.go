package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Arg is the argument by which a host's agent program starts a sink: see Main.
func (cfg Config) Arg() string {
	text, _ := json.Marshal(cfg) // a struct of texts and numbers can always be written
	return string(text)
}

// Main is Run in a process of its own until SIGTERM, SIGINT or SIGHUP. The first argument is the Arg of a Config; a
// second one, where it is there, is its Filter.
func Main(args []string) error {
	if err := Quiet(); err != nil {
		return err
	}
	var cfg Config
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("a sink takes its settings as JSON, and perhaps a filter program, and not %d arguments", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return fmt.Errorf("reading the settings of a sink: %w", err)
	}
	if len(args) == 2 {
		cfg.Filter = args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	// The name by which ps knows the process; without it, it is called what /proc calls the program's file.
	_ = os.WriteFile("/proc/self/comm", []byte("sink-"+cfg.Kind), 0)
	return Run(ctx, cfg, os.Stdout)
}
