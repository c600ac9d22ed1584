package bridge

import (
	"context"
	"log/slog"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/recording/location"
)

// Recordings configures where sessions are recorded.
type Recordings struct {
	Location location.Location `envconfig:"CLUSTERPASS_RECORDINGS" desc:"Location of session recordings: dir:PATH or s3:BUCKET[/PREFIX][,key=KMS-KEY]. Without it, sessions whose recording is required are refused. Default of the program for one machine: the directory recordings in CLUSTERPASS_DATA." example:"s3:recordings/prod"`
	MaxAge   time.Duration     `envconfig:"CLUSTERPASS_RECORDINGS_MAX_AGE" default:"720h" min:"0s" desc:"How long a recording is kept in a directory. 0s means for ever. A lifecycle rule of the bucket limits recordings in S3." example:"2160h"`
	MaxBytes int64             `envconfig:"CLUSTERPASS_RECORDINGS_MAX_BYTES" default:"10737418240" min:"0" desc:"Maximum size of all recordings in a directory. Beyond it, the oldest are deleted. 0 means no limit." example:"1073741824"`
}

const (
	keyTimeout = 10 * time.Second // for one attempt to read or create the key of recordings
	keyRetry   = 5 * time.Second  // between two attempts
)

// openRecordings opens the store of recordings, and enforces its limits in the background. If the key of recordings is
// unavailable, the bridge records nothing until a later attempt succeeds.
func (h *Handler) openRecordings(ctx context.Context, b *Bridge, p *assembly.Parts, cfg Recordings) error {
	if cfg.Location.Kind == "" {
		return nil
	}
	store, err := location.Open(ctx, cfg.Location, location.Retention{MaxAge: cfg.MaxAge, MaxSize: cfg.MaxBytes}, p.Log)
	if err != nil {
		return &config.Error{
			Variable: "CLUSTERPASS_RECORDINGS", Problem: err.Error(), Example: "dir:/var/lib/clusterpass/recordings",
		}
	}
	h.closers = append(h.closers, store.Close)
	h.onClose(background(ctx, store.Run))
	begin := func(ctx context.Context) error { return b.beginRecording(ctx, p, store) }
	if err := begin(ctx); err != nil {
		p.Log.Warn("sessions cannot be recorded yet", "error", err.Error())
		h.onClose(background(ctx, func(ctx context.Context) { retryBegin(ctx, p.Log, begin) }))
	}
	return nil
}

func (b *Bridge) beginRecording(ctx context.Context, p *assembly.Parts, store recording.Store) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	signer, err := keys.Ensure(ctx, p.Stores.Secrets, p.Stores.Objects)
	if err != nil {
		return err
	}
	b.RecordTo(recording.New(recording.Config{Store: store, Signer: signer, Log: p.Log}), p.Log)
	return nil
}

// retryBegin calls begin every keyRetry until it succeeds or ctx ends.
func retryBegin(ctx context.Context, log *slog.Logger, begin func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(keyRetry):
		}
		err := begin(ctx)
		if err == nil {
			log.Info("sessions can be recorded now")
			return
		}
		log.Warn("sessions cannot be recorded yet", "error", err.Error())
	}
}
