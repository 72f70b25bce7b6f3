package agent

import (
	"context"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const longestRetryAfter = time.Hour

// Backoff is the pauses between attempts: they double from First to Last, with jitter.
type Backoff struct {
	First, Last time.Duration
	next        time.Duration
}

// Reset starts over with the first pause.
func (b *Backoff) Reset() { b.next = b.First }

// Next is the pause before the next attempt. It is not shorter than the agent asked for.
func (b *Backoff) Next(atLeast time.Duration) time.Duration {
	b.next = max(b.next, b.First)
	own := min(b.Last, jitter(b.next, 1))
	b.next = min(max(b.Last/2, b.First), 2*b.next)
	return max(own, min(longestRetryAfter, jitter(atLeast, 0.3)))
}

// jitter adds up to this part, so that a thousand clients do not come back at once.
func jitter(pause time.Duration, part float64) time.Duration {
	return pause + time.Duration(rand.Float64()*part*float64(pause))
}

// RetryAfter reads the header of an answer, in seconds or as an HTTP date: at most an hour, 0 if there is none.
func RetryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.Atoi(header)
		if err != nil || seconds > int(longestRetryAfter/time.Second) {
			return longestRetryAfter // err: too many digits
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, min(longestRetryAfter, date.Sub(now)))
}

// Sleep returns early, with false, when ctx ends.
func Sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
