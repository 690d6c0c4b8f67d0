package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Why a question has no answer. A gateway that is silent may have done what it was asked.
var (
	ErrAway   = errors.New("the gateway is away")
	ErrSilent = errors.New("the gateway did not answer in time")
	errBusy   = errors.New("it is asked too much at once")
	errTopic  = errors.New("it does not know this question: does it run an older version?")
)

const (
	// askMost is how long a question may take.
	askMost = 3 * time.Second
	// answersAtOnce bounds the questions that are answered at the same time.
	answersAtOnce = 256
	// messagesKept bounds the questions and answers that wait for a gateway.
	messagesKept = 10_000
	// messagesFor is how long they are kept.
	messagesFor = time.Minute
	// postConnections are for questions and answers: one to read, the others to write.
	postConnections = 4
)

// Answerer answers a question of another gateway before ctx ends. Its error's text is told there.
type Answerer func(ctx context.Context, from string, body []byte) ([]byte, error)

// post carries questions and answers between gateways, by a stream for each gateway.
type post struct {
	client *redis.Client

	mu      sync.Mutex // guards what follows
	answers map[string]Answerer
	waiting map[string]chan<- answered // by token
	busy    int
	running sync.WaitGroup
}

// answered is what became of a question.
type answered struct {
	body []byte
	err  error
}

// send adds a message to the stream KEYS[2] of a gateway, if that is there: KEYS[1] is its "alive". Arguments are how
// many messages are kept, for how many ms, and the message's fields.
var send = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
`)

func (s *Store) send(ctx context.Context, to string, fields ...any) error {
	there, err := send.Run(ctx, s.post.client, []string{s.key("alive", to), s.key("ask", to)},
		append([]any{messagesKept, messagesFor.Milliseconds()}, fields...)...).Int()
	if err != nil {
		return fmt.Errorf("the store: %s", plain(err))
	}
	if there == 0 {
		return fmt.Errorf("%s: %w", to, ErrAway)
	}
	return nil
}

// Answer has questions of a topic answered, each in a goroutine of its own; nil: no longer.
func (s *Store) Answer(topic string, f Answerer) {
	s.post.mu.Lock()
	defer s.post.mu.Unlock()
	if s.post.answers[topic] = f; f == nil {
		delete(s.post.answers, topic)
	}
}

// Ask asks another gateway, and waits for its answer: 3 s at most. It fails with ErrAway, with ErrSilent, with what the
// other one says, or because of the store.
func (s *Store) Ask(ctx context.Context, gateway, topic string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	token, reply := s.token(), make(chan answered, 1)
	s.post.mu.Lock()
	s.post.waiting[token] = reply
	s.post.mu.Unlock()
	defer func() {
		s.post.mu.Lock()
		delete(s.post.waiting, token)
		s.post.mu.Unlock()
	}()
	sealed := s.seal(messagePlace(s.Gateway, gateway, topic, token), body)
	if err := s.send(ctx, gateway, "from", s.Gateway, "topic", topic, "token", token, "body", sealed); err != nil {
		return nil, err
	}
	select {
	case a := <-reply:
		if a.err != nil {
			return nil, fmt.Errorf("%s: %w", gateway, a.err)
		}
		return a.body, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", gateway, ErrSilent)
	}
}

// read takes questions and answers to this gateway until ctx ends. While the store is away it tries again.
func (s *Store) readPost(ctx context.Context) {
	defer s.post.running.Wait()
	defer context.AfterFunc(ctx, func() { s.post.client.Close() })()
	pause, last := soonest, "0-0"
	for ctx.Err() == nil {
		next, err := s.readMessages(ctx, last)
		if err == nil {
			pause, last = soonest, next
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, latest)
		if last, err = s.before(ctx, last); err != nil {
			continue
		}
	}
}

// before returns from where to read after a new connection: from an ID, or from the last one if that is earlier. The
// clock of another server may be behind.
func (s *Store) before(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	newest, err := s.post.client.XRevRangeN(ctx, s.key("ask", s.Gateway), "+", "-", 1).Result()
	switch {
	case err != nil:
		return id, err
	case len(newest) == 0:
		return "0-0", nil
	case millis(newest[0].ID) < millis(id):
		return newest[0].ID, nil
	}
	return id, nil
}

// millis is when a message was sent, by the store's clock in ms.
func millis(id string) int64 {
	text, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// readMessages waits for messages after an ID, and returns the last one's.
func (s *Store) readMessages(ctx context.Context, last string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, readWait+askFor)
	defer cancel()
	answer, err := s.post.client.XRead(limited, &redis.XReadArgs{Streams: []string{s.key("ask", s.Gateway), last},
		Count: changesAtOnce, Block: readWait}).Result()
	if errors.Is(err, redis.Nil) {
		return last, nil
	}
	if err != nil {
		return last, err
	}
	for _, stream := range answer {
		for _, m := range stream.Messages {
			last = m.ID
			s.take(ctx, m)
		}
	}
	return last, nil
}

// take takes a message: a question, or the answer to one.
func (s *Store) take(ctx context.Context, m redis.XMessage) {
	text := func(name string) string { t, _ := m.Values[name].(string); return t }
	from, topic, token := text("from"), text("topic"), text("token")
	body, err := s.open(messagePlace(from, s.Gateway, topic, token), []byte(text("body")))
	if err != nil {
		s.refuse("message", from, topic, err)
		return
	}
	p := &s.post
	p.mu.Lock()
	defer p.mu.Unlock()
	if reply := p.waiting[token]; topic == "" {
		if reply != nil {
			delete(p.waiting, token)
			reply <- answerOf(body)
		}
		return
	}
	if !s.asked(m.ID) || len(s.Key) > 0 && !s.asked(token) {
		return
	}
	f, busy := p.answers[topic], p.busy >= answersAtOnce
	p.busy++
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, askMost)
		defer cancel()
		s.reply(ctx, f, busy, from, token, body)
		p.mu.Lock()
		p.busy--
		p.mu.Unlock()
	})
}

// token returns what a question and its answer are known by. It begins with the store's time in ms: somebody else who
// sends a signed question again later gets no answer.
func (s *Store) token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d-%s", s.clock.now().UnixMilli(), random())
}

// asked reports whether this gateway is to answer a question with an ID or a token: who asked still waits, no other
// one has its name, and it did not count as away since it said that it is there.
func (s *Store) asked(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.clock.at.IsZero() && time.Since(s.clock.at) < aliveFor-askMost &&
		s.clock.now().UnixMilli()-millis(id) < askMost.Milliseconds()
}

// reply answers a question.
func (s *Store) reply(ctx context.Context, f Answerer, busy bool, to, token string, question []byte) {
	var body []byte
	err := errTopic
	switch {
	case f != nil && busy:
		err = errBusy
	case f != nil:
		body, err = f(ctx, to, question)
	}
	content := append([]byte{'+'}, body...)
	if err != nil {
		content = append([]byte{'-'}, err.Error()...)
	}
	sealed := s.seal(messagePlace(s.Gateway, to, "", token), content)
	if err := s.send(ctx, to, "from", s.Gateway, "topic", "", "token", token, "body", sealed); err != nil {
		s.Log.Warn("another gateway does not get its answer", "to", to, "err", err)
	}
}

// answerOf decodes an answer.
func answerOf(content []byte) answered {
	if len(content) > 0 && content[0] == '+' {
		return answered{body: content[1:]}
	}
	return answered{err: errors.New(strings.TrimPrefix(string(content), "-"))}
}
