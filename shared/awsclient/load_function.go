//go:build lambda.norpc

package awsclient

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Load reads region, endpoint and credentials from the variables of AWS Lambda, and AWS_ENDPOINT_URL.
func Load(context.Context) (aws.Config, error) {
	id, key := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if id == "" || key == "" {
		return aws.Config{},
			errors.New(
				"no AWS credentials: a function reads them from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which Lambda sets")
	}
	cfg := aws.Config{
		Region:      cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Credentials: credentials.NewStaticCredentialsProvider(id, key, os.Getenv("AWS_SESSION_TOKEN")),
	}
	if url := os.Getenv("AWS_ENDPOINT_URL"); url != "" {
		cfg.BaseEndpoint = &url
	}
	return cfg, nil
}
