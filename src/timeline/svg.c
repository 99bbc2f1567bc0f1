/* The overview as SVG. */
#include "timeline/draw.h"

#include <millrace/text.h>

void mr_svg_rect(FILE *file, double x, double y, double w, double h, uint32_t colour)
{
    fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#%06x\"/>\n",
            x, y, w, h, colour);
}

void mr_svg_text(FILE *file, double x, double y, enum mr_anchor anchor, bool bold, int size,
                 uint32_t colour, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    fprintf(file,
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" fill=\"#%06x\" text-anchor=\"%s\"%s>", x,
            y + size * 0.35, size, colour, anchors[anchor], bold ? " font-weight=\"600\"" : "");
    mr_text_write_xml(text, file);
    fputs("</text>\n", file);
}

/* What the bar shows. */
static void put_parts(FILE *file, const struct mr_tl_story *story)
{
    fputs(story->n_steps ? "; of the steps' time" : "; of the time", file);
    for (int i = 0; i < MR_N_SHARES; i++)
        if (story->part[i] >= 0.0005)
            fprintf(file, ", %s %.1f%%", mr_share_names[i], 100 * story->part[i]);
    for (int i = 0; i < MR_N_IDLE; i++)
        if (story->idle[i] >= 0.0005)
            fprintf(file, "%s %s %.1f%%", ", idle by", mr_idle_text((enum mr_idle_class)i),
                    100 * story->idle[i]);
}

int mr_timeline_svg(FILE *file, const struct mr_timeline *tl)
{
    uint32_t height = mr_overview_height(tl);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" viewBox=\"0 0 %d "
            "%u\" "
            "font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" "
            "role=\"img\">\n<title>",
            MR_OVERVIEW_W, height, MR_OVERVIEW_W, height);
    mr_text_write_xml(tl->title, file);
    fputs("</title>\n<desc>", file);
    mr_text_write_xml(tl->story->verdict, file);
    fprintf(file, "%s%llu events", *tl->story->verdict ? ". " : "",
            (unsigned long long)tl->n_events);
    if (tl->story->wall_ns)
        put_parts(file, tl->story);
    fputs(".</desc>\n", file);
    int rc = mr_overview_draw(tl, file);
    fputs("</svg>\n", file);
    return rc;
}
