package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Arg is Main's first argument: the settings in JSON.
func (cfg Config) Arg() string {
	text, _ := json.Marshal(cfg) // cannot fail for a struct of strings and numbers
	return string(text)
}

// Main is the main function of a sink's process: it calls Run until SIGTERM, SIGINT or SIGHUP. The first argument is a
// Config's Arg, the optional second one a filter program (Config.Filter).
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
	// ps shows this name instead of "exe", the name of the program's file in /proc.
	_ = os.WriteFile("/proc/self/comm", []byte("sink-"+cfg.Kind), 0)
	return Run(ctx, cfg, os.Stdout)
}
