package oplog

import (
	"errors"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const longestRetryAfter = time.Hour

// Backoff bounds the pauses between attempts. They double from First to Last, with jitter. The zero value means 1 s to 30 s.
type Backoff struct {
	First, Last time.Duration
}

func (b Backoff) pauses() (*pauses, error) {
	if b == (Backoff{}) {
		b = Backoff{First: time.Second, Last: 30 * time.Second}
	}
	if b.First <= 0 || b.Last < b.First {
		return nil, errors.New("Backoff: First must be positive, and Last not less than First")
	}
	return &pauses{Backoff: b}, nil
}

// pauses yields the pauses of consecutive failures.
type pauses struct {
	Backoff
	following time.Duration
}

// reset starts over with the first pause.
func (p *pauses) reset() { p.following = p.First }

// next returns the pause before the next attempt. It is at least as long as the agent asked for.
func (p *pauses) next(atLeast time.Duration) time.Duration {
	p.following = max(p.following, p.First)
	own := min(p.Last, jitter(p.following, 1))
	p.following = min(max(p.Last/2, p.First), 2*p.following)
	return max(own, min(longestRetryAfter, jitter(atLeast, 0.3)))
}

// jitter adds up to this part of the pause, so that a thousand clients do not come back at once.
func jitter(pause time.Duration, part float64) time.Duration {
	return pause + time.Duration(rand.Float64()*part*float64(pause))
}

// retryAfter reads the Retry-After header, in seconds or as an HTTP date. It returns at most an hour, and 0 without a valid value.
func retryAfter(response *http.Response, now time.Time) time.Duration {
	header := strings.TrimSpace(response.Header.Get("Retry-After"))
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.Atoi(header)
		if err != nil || seconds > int(longestRetryAfter/time.Second) { // err: too many digits
			return longestRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, min(longestRetryAfter, date.Sub(now)))
}
