//go:build !lambda.norpc

package awsclient

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Load finds region, endpoint and credentials: in the SDK's standard environment, or, in programs that are built as functions
// (tag lambda.norpc), in the variables that AWS Lambda sets. Those that sign people in (SSO, profiles, the browser) would be a
// tenth of a function.
func Load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return cfg, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return cfg, nil
}
