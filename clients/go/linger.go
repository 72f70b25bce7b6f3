package oplog

import (
	"context"
	"sync"
	"time"
)

// linger sends operations that have waited for some time, in a goroutine of its own.
type linger struct {
	wait    time.Duration                               // negative: for ever
	send    func(context.Context) (pause time.Duration) // pause: before the next attempt after a failure, else 0
	waiting func() int                                  // number of operations that wait
	ctx     context.Context                             // ends with stop
	stop    context.CancelFunc
	mutex   sync.Mutex
	runs    bool // a timer runs, or send
}

func newLinger(wait time.Duration, send func(context.Context) time.Duration, waiting func() int) *linger {
	ctx, stop := context.WithCancel(context.Background())
	return &linger{wait: wait, send: send, waiting: waiting, ctx: ctx, stop: stop}
}

// begin is called after an operation was added. It starts the timer unless it runs.
func (l *linger) begin() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.runs && l.wait >= 0 {
		l.runs = true
		time.AfterFunc(l.wait, l.run)
	}
}

func (l *linger) run() {
	if l.ctx.Err() != nil {
		return
	}
	pause := l.send(l.ctx)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.waiting() == 0 {
		l.runs = false
		return
	}
	if pause == 0 { // these have come meanwhile
		pause = l.wait
	}
	time.AfterFunc(pause, l.run)
}
