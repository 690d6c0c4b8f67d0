package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// connect returns a client with so many connections, which it makes when they are needed, and calls made for each.
func (s *Store) connect(most int, limit time.Duration, made func(context.Context, *redis.Conn) error) *redis.Client {
	dial := s.dialer(limit)
	if s.Master != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: s.Master, SentinelAddrs: s.Addresses, CredentialsProviderContext: s.login, Dialer: dial,
			SentinelUsername: s.Sentinels.User, SentinelPassword: s.Sentinels.Password,
			DialTimeout: limit, ReadTimeout: limit, WriteTimeout: limit, PoolTimeout: limit, PoolSize: most, MaxRetries: -1,
			DialerRetries: 1, ConnMaxIdleTime: -1, ContextTimeoutEnabled: true, DisableIdentity: true, OnConnect: made,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: s.Addresses[0], CredentialsProviderContext: s.login, Dialer: dial,
		DialTimeout: limit, ReadTimeout: limit, WriteTimeout: limit, PoolTimeout: limit, PoolSize: most, MaxRetries: -1,
		DialerRetries: 1, ConnMaxIdleTime: -1, ContextTimeoutEnabled: true, DisableIdentity: true, OnConnect: made,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// secrets are those of a new connection.
func (s *Store) secrets() (Secrets, error) {
	if s.Renew != nil {
		return s.Renew()
	}
	return Secrets{s.Password, s.TLS}, nil
}

// login is who logs in by a new connection.
func (s *Store) login(context.Context) (user, password string, err error) {
	now, err := s.secrets()
	return s.User, now.Password, err
}

// dialer returns what opens a connection within a limit, encrypted where that is asked for.
func (s *Store) dialer(limit time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		now, err := s.secrets()
		if err != nil {
			return nil, err
		}
		if now.TLS == nil {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		return (&tls.Dialer{Config: now.TLS}).DialContext(ctx, network, addr)
	}
}

// Try connects with a store, logs in and asks it something, within askFor. Its error says in plain words why not, and
// what to do. It writes nothing.
func Try(ctx context.Context, o Options) error {
	silence()
	s := &Store{Options: o}
	c := s.connect(1, askFor, nil)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	if err := c.Exists(ctx, s.key("epoch")).Err(); err != nil {
		return errors.New(plain(err))
	}
	return nil
}
