package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func runCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Long: "Runs the daemon until SIGTERM or SIGINT. With datapath.kind = \"ebpf\" traffic of logged-in clients\n" +
			"continues while the daemon is down or restarts, with \"kernel\" for 5 minutes; with the other kinds it stops. " +
			"`gatewayd detach`\n" +
			"removes what stays in the kernel. SIGHUP rereads the configuration, applies log_level, and names other changed " +
			"keys,\n" +
			"which wait for a restart; a file with mistakes changes nothing.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), file) },
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultConfig, "configuration")
	return cmd
}

// run runs the daemon until ctx ends.
func run(ctx context.Context, file string) error {
	cfg, err := load(file)
	if err != nil {
		return err
	}
	var level slog.LevelVar
	level.Set(cfg.LogLevel)
	log := newLog(cfg.LogFormat, &level)
	slog.SetDefault(log)

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ctx, stop := context.WithCancel(ctx)
	ready, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		watch(ctx, ready, hangup, cfg, &level, log)
	}()
	err = gateway.Run(
		ctx, cfg, gateway.Daemon{Version: version, Log: log, Ready: func() { dropPrivileges(cfg, log); close(ready) }})
	stop()
	<-watched
	if err == nil {
		log.Info("gatewayd has ended; " + gateway.WithoutDaemon(cfg))
	}
	return err
}

// load reads a configuration and checks the files that it names. Mistakes in any of them are usage errors.
func load(file string) (*config.Config, error) {
	cfg, err := config.Load(file)
	if err == nil {
		err = gateway.Refused(gateway.CheckFiles(cfg))
	}
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return cfg, nil
}

func newLog(format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// watch reports the daemon's state to the service manager, and rereads the configuration at each signal, until ctx
// ends. A signal that comes before the daemon is ready has to wait: READY=1, which ends a reload, would tell the
// manager that the daemon is ready (sd_notify(3)).
func watch(ctx context.Context, ready <-chan struct{}, hangup <-chan os.Signal, cfg *config.Config,
	level *slog.LevelVar, log *slog.Logger) {
	defer notifyManager(log, "STOPPING=1")
	select {
	case <-ctx.Done():
		return
	case <-ready:
	}
	log.Info("gatewayd is ready", "version", version, "lan", cfg.LAN.Interface, "wan", cfg.WAN.Interface, "socket",
		cfg.ControlSocket())
	notifyManager(log, "READY=1")
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		notifyManager(log, "RELOADING=1\n"+monotonic())
		reload(cfg, level, log)
		notifyManager(log, "READY=1")
	}
}

// reload reads the configuration again and applies the keys that can change while the daemon runs. It logs which other
// changed keys need a restart. A file with mistakes changes nothing.
func reload(running *config.Config, level *slog.LevelVar, log *slog.Logger) {
	fresh, err := config.Load(running.File)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("reading the configuration again: " + line)
		}
		log.Error("the configuration in use stays as it was")
		return
	}
	level.Set(fresh.LogLevel)
	waiting := slices.DeleteFunc(
		config.Changed(running, fresh), func(key string) bool { return slices.Contains(config.LiveKeys, key) })
	if len(waiting) > 0 {
		log.Warn("changed keys take effect when gatewayd is restarted; meanwhile "+gateway.WithoutDaemon(running), "keys",
			strings.Join(waiting, " "))
	}
	log.Info("read the configuration again", "file", running.File, "log_level", fresh.LogLevel)
}
