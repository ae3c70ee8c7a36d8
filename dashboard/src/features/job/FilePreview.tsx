/**
 * Preview of a file that a job wrote: the beginning of a text, or an image.
 *
 * The page fetches it with the token. An image is shown from the page's memory by an `img`, in which
 * no script of an SVG runs.
 */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { getJobFile, type KeptFileView } from "@/api/generated";
import { Failed } from "@/components/Failed";
import { bytes } from "@/lib/format";
import classes from "./FilesTab.module.css";
import { IMAGE_BYTES_MAX, imageType, startOf, TEXT_BYTES_MAX, textOf } from "./kept-files";

interface PreviewProps {
  jobId: string;
  file: KeptFileView;
  /** The path without characters that are not printed. */
  name: string;
}

export function FilePreview({ jobId, file, name }: PreviewProps) {
  const image = imageType(file.path);
  const { data, error, refetch } = useQuery({
    queryKey: ["job", jobId, "file", file.path, file.sha256],
    queryFn: async ({ signal }) => {
      const path = { reference: jobId, path: file.path };
      if (image === null) {
        const { data: stream } = await getJobFile({ path, parseAs: "stream", signal, throwOnError: true });
        return textOf(await startOf(stream as unknown as ReadableStream<Uint8Array> | null, TEXT_BYTES_MAX));
      }
      const { data: content } = await getJobFile({ path, parseAs: "blob", signal, throwOnError: true });
      return new Blob([content as Blob], { type: image });
    },
    enabled: file.bytes > 0 && (image === null || file.bytes <= IMAGE_BYTES_MAX),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  if (file.bytes === 0) return <p className={classes.facts}>The file is empty.</p>;
  if (image !== null && file.bytes > IMAGE_BYTES_MAX) {
    return <p className={classes.facts}>Images of more than {bytes(IMAGE_BYTES_MAX)} have no preview.</p>;
  }
  if (data === undefined) {
    return error === null ? <div aria-busy="true" /> : <Failed error={error} retry={() => void refetch()} />;
  }
  if (data === null) return <p className={classes.facts}>A binary file, without a preview.</p>;
  if (data instanceof Blob) return <Picture content={data} name={name} />;
  return (
    <>
      <section
        className={classes.text}
        aria-label={`Beginning of ${name}`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
        tabIndex={0}
      >
        {data}
      </section>
      {file.bytes > TEXT_BYTES_MAX ? (
        <p className={classes.facts}>
          The first {bytes(TEXT_BYTES_MAX)} of {bytes(file.bytes)}.
        </p>
      ) : null}
    </>
  );
}

function Picture({ content, name }: { content: Blob; name: string }) {
  const [address, setAddress] = useState<string | null>(null);
  const [isBroken, setIsBroken] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(content);
    setAddress(made);
    setIsBroken(false);
    return () => URL.revokeObjectURL(made);
  }, [content]);
  if (isBroken) return <p className={classes.facts}>The browser cannot show it as an image.</p>;
  return address === null ? null : (
    <img className={classes.image} src={address} alt={name} onError={() => setIsBroken(true)} />
  );
}
