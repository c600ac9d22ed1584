package agentserver

import (
	"context"
	"net"
	"time"
)

// headStart is how long an attempt may last before the next one starts.
const headStart = time.Second

// race runs up to n attempts to connect. The next one starts when the last one fails, or after headStart. race returns
// the first connection and closes later ones, or returns the errors, with nil for attempts that ctx prevented.
func race(ctx context.Context, n int, connect func(ctx context.Context, i int) (net.Conn, error)) (net.Conn, []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // cancels the other attempts
	type answer struct {
		i    int
		conn net.Conn
		err  error
	}
	answers := make(chan answer, n)
	errs := make([]error, n)
	started, waiting := 0, 0
	next := func() {
		if started == n || ctx.Err() != nil {
			return
		}
		i := started
		started++
		waiting++
		go func() {
			conn, err := connect(ctx, i)
			answers <- answer{i, conn, err}
		}()
	}
	tick := time.NewTicker(headStart)
	defer tick.Stop()
	for next(); waiting > 0; {
		select {
		case <-tick.C:
			next()
		case a := <-answers:
			waiting--
			if a.err == nil {
				go func() {
					for range waiting {
						if late := <-answers; late.err == nil {
							_ = late.conn.Close()
						}
					}
				}()
				return a.conn, nil
			}
			errs[a.i] = a.err
			next()
			tick.Reset(headStart)
		}
	}
	return nil, errs
}
