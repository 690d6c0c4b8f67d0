package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
)

func runCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Long: "Runs the daemon until SIGTERM or SIGINT. With datapath.kind = \"ebpf\" traffic of logged-in clients\n" +
			"continues while the daemon is down or restarts, with \"kernel\" for 5 minutes; with the other kinds it stops. " +
			"`gatewayd detach`\n" +
			"removes what stays in the kernel. SIGHUP rereads the configuration as `gatewayd reload` does.",
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
	r := &reloader{running: cfg, level: &level, log: log}
	go func() {
		defer close(watched)
		watch(ctx, ready, hangup, r)
	}()
	err = gateway.Run(ctx, cfg, gateway.Daemon{
		Version: version, Log: log, Ready: func() { dropPrivileges(cfg, log); close(ready) },
		Reload: r.reload, Apply: func(apply gateway.Apply) { r.apply = apply },
	})
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
func watch(ctx context.Context, ready <-chan struct{}, hangup <-chan os.Signal, r *reloader) {
	cfg, log := r.running, r.log
	defer notifyManager(log, "STOPPING=1")
	select {
	case <-ctx.Done():
		return
	case <-ready:
	}
	var lans []string
	for _, n := range cfg.All() {
		lans = append(lans, n.LAN.Interface)
	}
	log.Info("gatewayd is ready", "version", version, "lan", strings.Join(lans, " "), "wan", cfg.WAN.Interface, "socket",
		cfg.ControlSocket())
	notifyManager(log, "READY=1")
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		notifyManager(log, "RELOADING=1\n"+monotonic())
		r.reload()
		notifyManager(log, "READY=1")
	}
}

// reloader reads the configuration of a running daemon again.
type reloader struct {
	level *slog.LevelVar
	log   *slog.Logger
	apply gateway.Apply // serves other networks; nil: there is one, or they are not served yet

	mu      sync.Mutex     // held while the file is read and applied
	running *config.Config // as the daemon was started
	applied *config.Config // whose networks are served; nil: running's
}

// reload reads the configuration again and applies what can change while the daemon runs: log_level, and several
// networks. It logs which other changed keys need a restart; with such keys no network changes. A file with mistakes
// changes nothing.
func (r *reloader) reload() (reply control.ReloadReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh, err := config.Load(r.running.File)
	if err == nil && len(fresh.Networks) > 0 {
		err = gateway.Refused(gateway.CheckFiles(fresh))
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.log.Error("reading the configuration again: " + line)
			reply.Problems = append(reply.Problems, line)
		}
		r.log.Error("the configuration in use stays as it was")
		return reply
	}
	r.level.Set(fresh.LogLevel)
	reply.Waiting = r.waiting(fresh)
	if len(reply.Waiting) > 0 {
		r.log.Warn("changed keys take effect when gatewayd is restarted; meanwhile "+gateway.WithoutDaemon(r.running), "keys",
			strings.Join(reply.Waiting, " "))
		if reply.Held = config.NetworksDiffer(cmp.Or(r.applied, r.running), fresh); reply.Held {
			r.log.Error("no network has changed, because of keys that all networks have in common: restart gatewayd, which "+
				"applies the whole file, or set them as they were and reload", "keys", strings.Join(reply.Waiting, " "))
		}
	} else if r.apply != nil {
		reply.Networks, reply.Failed = r.apply(fresh)
		r.applied = fresh
	}
	if len(fresh.Networks) == 0 {
		if err := gateway.Refused(gateway.CheckFiles(fresh)); err != nil {
			reply.Files = strings.Split(err.Error(), "\n")
			r.log.Error("files that the configuration names have mistakes: what was read before stays", "err", err)
		}
	}
	r.log.Info("read the configuration again", "file", r.running.File, "log_level", fresh.LogLevel)
	return reply
}

// waiting are the changed keys that take effect with a restart.
func (r *reloader) waiting(fresh *config.Config) []string {
	if (len(r.running.Networks) > 0) != (len(fresh.Networks) > 0) {
		return []string{"network"}
	}
	fixed := config.FixedKeys()
	return slices.DeleteFunc(config.Changed(r.running, fresh), func(key string) bool {
		return slices.Contains(config.LiveKeys, key) || len(fresh.Networks) > 0 && !slices.Contains(fixed, key)
	})
}
